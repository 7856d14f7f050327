"""Normalization of pixels to network inputs, on the network's device, a whole batch at once."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """uint8 images (B, 3, H, W) to float32 `(images / 255 - mean) / std`, in their memory format."""

    scale: Tensor
    bias: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        mean_, std_ = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
        self.register_buffer("scale", 1 / (255 * std_))
        self.register_buffer("bias", -mean_ / std_)

    def forward(self, images: Tensor) -> Tensor:
        return images.float().mul_(self.scale).add_(self.bias)
