"""Framed images made worse, as cameras, light and software do, to see how a model copes.

What they are like is all that is asked of them, so they are degraded at the size that the network
sees: a blur is as wide as so many pixels of the network.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Generator, Tensor

# Frames (B, H, W, 3), uint8; how strongly; and the source of randomness.
Degrade = Callable[[Tensor, float, Generator], Tensor]


@dataclass(frozen=True)
class Degradation:
    """A way in which images become worse, and how strongly."""

    name: str
    degrade: Degrade
    strength: float

    def __call__(self, frames: Tensor, seed: int) -> Tensor:
        """Return the frames (B, H, W, 3), uint8, degraded; the same ones for the same seed."""
        return self.degrade(frames, self.strength, Generator().manual_seed(seed))


def _floats(frames: Tensor) -> Tensor:
    """Return (B, 3, H, W), float32, 0 to 1."""
    return frames.permute(0, 3, 1, 2).float().div(255)


def _frames(images: Tensor) -> Tensor:
    rounded = images.clamp(0, 1).mul(255).round().byte()
    return rounded.permute(0, 2, 3, 1).contiguous()


def _add_noise(frames: Tensor, strength: float, generator: Generator) -> Tensor:
    """Add normally distributed noise of this standard deviation; 1 is white."""
    images = _floats(frames)
    noise = torch.randn(images.shape, generator=generator)
    return _frames(images + strength * noise)


def _blur(frames: Tensor, strength: float, _: Generator) -> Tensor:
    """Keep this fraction of the pixels of a side, and enlarge what is left."""
    images = _floats(frames)
    size = list(images.shape[-2:])
    small = F.interpolate(images, [max(2, int(side * strength)) for side in size], mode="area")
    return _frames(F.interpolate(small, size, mode="bilinear", align_corners=False))


def _darken(frames: Tensor, strength: float, _: Generator) -> Tensor:
    return _frames(_floats(frames) * strength)


def _brighten(frames: Tensor, strength: float, _: Generator) -> Tensor:
    return _frames(1 - (1 - _floats(frames)) * strength)


def _flatten(frames: Tensor, strength: float, _: Generator) -> Tensor:
    """Keep this fraction of the contrast."""
    images = _floats(frames)
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return _frames(mean + (images - mean) * strength)


def _compress(frames: Tensor, strength: float, _: Generator) -> Tensor:
    """Encode as a JPEG of this quality."""
    decoded = []
    for frame in frames.numpy():
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", quality=int(strength))
        decoded.append(np.asarray(Image.open(file).convert("RGB")))
    return torch.from_numpy(np.stack(decoded))


def _turn(frames: Tensor, strength: float, _: Generator) -> Tensor:
    """Turn by so many degrees."""
    images = _floats(frames)
    angle = torch.deg2rad(torch.tensor(strength))
    rows = [[angle.cos(), -angle.sin(), 0.0], [angle.sin(), angle.cos(), 0.0]]
    matrices = torch.tensor(rows).expand(len(images), 2, 3)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return _frames(F.grid_sample(images, grid, padding_mode="border", align_corners=False))


def _cover(frames: Tensor, strength: float, generator: Generator) -> Tensor:
    """Cover a rectangle with sides of this fraction of the image's."""
    covered = frames.clone()
    _, height, width, _ = frames.shape
    for frame in covered:
        down, right = torch.rand(2, generator=generator).tolist()
        top = int(down * height * (1 - strength))
        left = int(right * width * (1 - strength))
        frame[top : top + int(height * strength), left : left + int(width * strength)] = 127
    return covered


KINDS: Sequence[tuple[str, Degrade, Sequence[float]]] = (
    ("noise", _add_noise, (0.04, 0.1, 0.2)),
    ("blur", _blur, (0.6, 0.4, 0.25)),
    ("darker", _darken, (0.6, 0.35, 0.18)),
    ("brighter", _brighten, (0.6, 0.35, 0.18)),
    ("contrast", _flatten, (0.6, 0.35, 0.18)),
    ("JPEG", _compress, (25, 10, 5)),
    ("turned", _turn, (12, 25, 50)),
    ("covered", _cover, (0.3, 0.45, 0.6)),
)
DEGRADATIONS = tuple(
    Degradation(name, degrade, strength)
    for name, degrade, strengths in KINDS
    for strength in strengths
)
