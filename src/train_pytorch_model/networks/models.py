"""Build the network of a checked model directory, and choose which parameters are trained."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.image_classifier.architectures import UnsupportedArchitectureError, build, head_of
from train_pytorch_model.image_classifier.classifier import recording_inputs
from train_pytorch_model.image_classifier.weights import WeightsError
from train_pytorch_model.networks.weights import load_weights


def build_untrained(directory: ModelDirectory, num_classes: int) -> nn.Module:
    """The directory's network with random weights. Raises `InvalidModelDirectoryError`."""
    try:
        return build(directory.architecture, directory.option, num_classes)
    except UnsupportedArchitectureError as error:
        raise directory.error(f"it is of {directory.architecture}: {error}") from error


def build_model(directory: ModelDirectory, categories: Sequence[str]) -> nn.Module:
    """The directory's network with its weights, for these categories.

    A trained directory's head keeps the rows of categories that it knows, by name; others get zeros. If an
    untrained one's head has another size, it is replaced by zeros if it is pretrained, otherwise by random
    weights from torch's global generator. The network maps (B, 3, H, W), float32, to logits (B, number of
    categories). Raises `InvalidModelDirectoryError`.
    """
    network = build_untrained(directory, len(categories))
    head = head_of(directory.architecture, network)
    if directory.is_pretrained:
        with torch.no_grad():
            for parameter in network.get_submodule(head).parameters():
                parameter.zero_()
    try:
        load_weights(network, head, directory.weights_path, directory.categories, categories)
    except WeightsError as error:
        raise directory.error(
            f"{directory.weights_path.name}: {error}",
            f"The weights of a {directory.architecture} are expected.",
        ) from error
    return network


def freeze_backbone(network: nn.Module, architecture: str) -> None:
    """Leave only the head trainable."""
    network.requires_grad_(False)
    network.get_submodule(head_of(architecture, network)).requires_grad_(True)


class OnFrozenBackbone(nn.Module):
    """A model with a frozen backbone, which also takes its features in place of images."""

    def __init__(self, model: nn.Module, head: nn.Module) -> None:
        """`model` maps uint8 images (B, 3, H, W) to logits (B, C); `head` is its last layer."""
        super().__init__()
        self.model, self.head = model, head

    def forward(self, given: Tensor) -> Tensor:
        """Map uint8 images (B, 3, H, W), or their features (B, D), to logits (B, C)."""
        logits: Tensor = self.model(given) if given.ndim == 4 else self.head(given)
        return logits

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """The features (B, D) of uint8 images (B, 3, H, W)."""
        with recording_inputs(self.head) as found:
            self.model(images)
        return found[0]


def divide_head(weights: Mapping[str, Tensor], head: str, temperature: float) -> dict[str, Tensor]:
    """The same weights, but a last layer, `head`, whose logits are divided by a temperature."""
    divided = {name: weights[name] / temperature for name in (f"{head}.weight", f"{head}.bias")}
    return {**weights, **divided}
