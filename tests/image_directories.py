"""A test image directory of three images."""

from pathlib import Path

from tests.painting import encode, paint
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    open_image_directory,
    write_image_directory,
)

PORT = "Training dataset"


def write_three(path: Path) -> Path:
    images = [
        ("0_0.png", encode(paint("blue", 0, (4, 4))), "große"),
        ("1_1.png", encode(paint("red", 1, (4, 4))), "b"),
        ("0_2.png", encode(paint("blue", 2, (4, 4))), "große"),
    ]
    write_image_directory(path, images, ["große", "b"], "--output")
    return path


def open_three(tmp_path: Path) -> ImageDirectory:
    return open_image_directory(write_three(tmp_path / "three"), PORT)
