"""16-bit images that use fewer bits: as bright as they are meant to be, wherever the model sees
them.
"""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.painting import paint_folders

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.data.pixel_decisions import decide_white_level, find_white_level
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.image_classifier.colours import MAX_WHITE, Colours
from train_pytorch_model.image_classifier.decoding import decode
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.opening import open_training_inputs

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"))


def write_deep(root: Path, highest: int, count: int = 4, suffix: str = ".png") -> Path:
    """Two categories of 16-bit images, dark and bright, whose values go up to `highest`."""
    for category, fraction in (("bright", 1.0), ("dark", 0.3)):
        (root / category).mkdir(parents=True)
        for index in range(count):
            random = np.random.default_rng([highest, index])
            values = random.integers(0, int(highest * fraction) + 1, (32, 32), dtype=np.uint16)
            values[0, 0] = int(highest * fraction)
            Image.fromarray(values).save(root / category / f"{index}{suffix}")
    return root


@pytest.mark.parametrize(
    ("highest", "level"), [(200, 255), (1023, 1023), (3000, 4095), (4096, 8191), (65535, 65535)]
)
@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_white_is_the_highest_value_of_as_many_bits_as_the_images_use(
    tmp_path: Path, highest: int, level: int, suffix: str
) -> None:
    images = open_image_directory(write_deep(tmp_path / "images", highest, 2, suffix), "Dataset")
    assert find_white_level(images) == level


def deep_png(values: np.ndarray) -> bytes:
    """A PNG of 16-bit colours, (H, W, 3), which Pillow does not write."""
    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


@pytest.mark.parametrize(("highest", "level"), [(4000, 4095), (60_000, MAX_WHITE)])
def test_colours_of_16_bits_are_scaled_as_well(tmp_path: Path, highest: int, level: int) -> None:
    values = np.array([[[0, 0, 0], [highest, highest // 2, 0]]], np.uint16)
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(deep_png(values))
    assert find_white_level(open_image_directory(tmp_path, "Dataset")) == level
    pixels = np.asarray(decode(tmp_path / "a/1.png", colours=Colours(level))).astype(int)
    assert np.abs(pixels - values * (255 / level)).max() <= 16  # of 12 bits, four are left


def test_images_of_eight_bits_are_not_scaled(tmp_path: Path) -> None:
    images = open_image_directory(paint_folders(tmp_path / "images", 2), "Dataset")
    assert find_white_level(images) == MAX_WHITE


def test_values_up_to_white_are_scaled_and_larger_ones_are_white(tmp_path: Path) -> None:
    values = np.array([[0, 1, 2048, 4095, 5000, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    pixels = np.asarray(decode(tmp_path / "a.png", colours=Colours(4095)))
    assert pixels[0, :, 0].tolist() == [0, 0, 127, 255, 255, 255]
    assert np.asarray(decode(tmp_path / "a.png"))[0, :, 0].tolist() == [0, 0, 7, 15, 19, 255]


@pytest.mark.parametrize(("asked", "level"), [(None, 4095), (8191, 8191)])
def test_the_recipe_comes_first(tmp_path: Path, asked: int | None, level: int) -> None:
    images = write_deep(tmp_path / "images", 4000)
    recipe = Recipe(white_level=asked)
    InitModel(output=tmp_path / "untrained", architecture="resnet18", recipe=recipe).run()
    inputs = open_training_inputs(tmp_path / "untrained", images, images)
    decided = decide_white_level(inputs, ALONE).with_flips(True)
    assert decided.recipe.white_level == level
    assert {f.colours.white_level for f in (decided.framing, *decided.training_framings(2))} == {
        level
    }
    assert ClassifierSpec.from_mapping(decided.spec.as_mapping()) == decided.spec
