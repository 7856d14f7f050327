"""Networks of which only the last layer is trained."""

import torch
from torch import Tensor, nn

from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.classifier import recording_inputs


def freeze_backbone(network: nn.Module, architecture: str) -> None:
    """Leave only the head trainable."""
    network.requires_grad_(False)
    network.get_submodule(architectures.head_of(architecture, network)).requires_grad_(True)


class OnFrozenBackbone(nn.Module):
    """A model with a frozen backbone, which also takes features in place of images."""

    def __init__(self, model: nn.Module, head: nn.Module) -> None:
        """`model` maps uint8 images (B, 3, H, W) to logits (B, C); `head` is its last layer."""
        super().__init__()
        self.model = model
        self.head = head

    def forward(self, images_or_features: Tensor) -> Tensor:
        """Map uint8 images (B, 3, H, W), or their features (B, D), to logits (B, C)."""
        is_images = images_or_features.ndim == 4
        part = self.model if is_images else self.head
        logits: Tensor = part(images_or_features)
        return logits

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """Return the features (B, D) of uint8 images (B, 3, H, W)."""
        with recording_inputs(self.head) as recorded:
            self.model(images)
        return recorded[0]
