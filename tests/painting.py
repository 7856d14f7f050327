"""Synthetic data sets for tests that need images: small, generated on the spot, and learnable."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COLOURS = {"blue": (30, 40, 200), "green": (30, 180, 60), "red": (210, 40, 30)}


def paint(category: str, index: int, size: tuple[int, int] = (32, 32)) -> Image.Image:
    """An RGB image of size (width, height): the category's colour plus noise, seeded by `index`."""
    width, height = size
    random = np.random.default_rng([len(category), index])
    noise = random.integers(-25, 26, (height, width, 3))
    return Image.fromarray((np.asarray(COLOURS[category]) + noise).clip(0, 255).astype(np.uint8))


def paint_scene(index: int, size: tuple[int, int] = (96, 64)) -> Image.Image:
    """An RGB image of size (width, height), with coarse shapes and fine detail, like a photo."""
    random, pixels = np.random.default_rng([7, index]), np.full((size[1], size[0], 3), 128.0)
    for side in (2, 3, 5, 8, 13, 21, 34):
        waves = random.normal(0, 120 / side, (side, side, 3)).astype(np.float32)
        for channel in range(3):
            plane = Image.fromarray(waves[:, :, channel]).resize(size, Image.Resampling.BICUBIC)
            pixels[:, :, channel] += np.asarray(plane)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The image as a file of that format; the options are Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def through_jpeg(image: Image.Image, quality: int = 60) -> Image.Image:
    """The image as it is decoded from a JPEG file."""
    return Image.open(io.BytesIO(encode(image, "JPEG", quality=quality))).convert("RGB")


def paint_folders(
    root: Path,
    per_category: int,
    categories: tuple[str, ...] = ("blue", "green", "red"),
    size: tuple[int, int] = (32, 32),
    first: int = 0,
) -> Path:
    """Write class folders of PNG files; another `first` gives different images of the same kind."""
    for category in categories:
        (root / category).mkdir(parents=True)
        for index in range(first, first + per_category):
            paint(category, index, size).save(root / category / f"{index}.png")
    return root
