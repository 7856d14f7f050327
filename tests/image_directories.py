"""Test image directories: any, and one of three images."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.painting import encode, paint
from train_pytorch_model.formats.image_directory import (
    IMAGE_FOLDER,
    ImageDirectory,
    image_row,
    open_image_directory,
    writing_image_directory,
)
from train_pytorch_model.formats.schema import image_schema

PORT = "Training dataset"


def write_image_directory(
    path: Path, images: Iterable[tuple[str, bytes, str | None]], categories: Sequence[str]
) -> None:
    """Write (file name below `image/`, its bytes, its category or None)."""
    with writing_image_directory(path, image_schema(categories), "output") as writer:
        for index, (name, data, category) in enumerate(images):
            row = image_row(f"{IMAGE_FOLDER}/{name}", index, category)
            writer.path_for(row).write_bytes(data)
            writer.add(row)


def write_three(path: Path) -> Path:
    images = [
        ("0_0.png", encode(paint("blue", 0, (4, 4))), "große"),
        ("1_1.png", encode(paint("red", 1, (4, 4))), "b"),
        ("0_2.png", encode(paint("blue", 2, (4, 4))), "große"),
    ]
    write_image_directory(path, images, ["große", "b"])
    return path


def open_three(tmp_path: Path) -> ImageDirectory:
    return open_image_directory(write_three(tmp_path / "three"), PORT)
