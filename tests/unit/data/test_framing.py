"""Whole images: padded or squashed where a centre crop would hide much, alike in training and
prediction.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.painting import paint_folders
from tests.recipes import decided_recipe

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.data.framing import frame
from train_pytorch_model.data.preparation import for_inference, for_training
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.image_classifier.pixels import view
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing, FramingMode
from train_pytorch_model.inputs.decide import decide
from train_pytorch_model.inputs.opening import open_training_inputs

PANORAMA, PHOTOGRAPH, WIDE = (260, 620), (375, 500), (1080, 1920)
BAR = 20  # px at the left edge of a panorama


def panorama() -> np.ndarray:
    """(260, 620, 3), grey, with a white bar at the left edge."""
    pixels = np.full((*PANORAMA, 3), 90, np.uint8)
    pixels[:, :BAR] = 255
    return pixels


@pytest.mark.parametrize("mode", ["pad", "squash"])
def test_the_whole_image_is_shown_in_training_and_prediction_alike(mode: FramingMode) -> None:
    framing = Framing(64, 96, 0.875, mode)
    seen = [view(panorama(), framing), frame(panorama(), framing)]
    for pixels in seen:
        assert pixels.shape == (64, 96, 3)
        middle = pixels[32, :, 0]
        assert middle[0] == 255
        assert (middle[6:] == 90).all()
    assert np.abs(seen[0].astype(int) - seen[1]).max() <= 2
    assert framing.seen(*PANORAMA) == 1
    assert view(panorama(), Framing(64, 96, 0.875))[32, 0, 0] == 90  # the crop hides the bar


def test_padding_keeps_the_aspect_ratio_and_repeats_the_edges() -> None:
    image = np.zeros((10, 40, 3), np.uint8)
    image[0], image[-1] = 200, 100
    padded = Framing(40, 40, 1.0, "pad").apply(Image.fromarray(image))
    assert (padded[:16] == 200).all()
    assert (padded[24:] == 100).all()
    assert (padded[16:24] == 0).any()


def test_random_crops_are_taken_from_the_whole_image() -> None:
    recipe = decided_recipe(augmentation="random-resized-crop", framing="pad")
    framing = Framing(64, 64, 0.875, "pad")
    kept = for_training(recipe, framing, framing)._frame(panorama())
    assert kept.shape == (
        96,
        96,
        3,
    )  # half as large again, so that windows of it have enough pixels
    assert kept[48, 0, 0] == 255
    assert for_inference(framing).num_cached_pixels(*PANORAMA) == 64 * 64


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({PHOTOGRAPH: 70, WIDE: 30}, "crop"),
        ({PHOTOGRAPH: 81, PANORAMA: 19}, "crop"),
        ({PHOTOGRAPH: 79, PANORAMA: 21}, "pad"),
        ({(620, 260): 50, PHOTOGRAPH: 50}, "pad"),
    ],
)
def test_many_elongated_images_are_padded(
    tmp_path: Path, sizes: Mapping[tuple[int, int], int], expected: str
) -> None:
    InitModel(output=tmp_path / "untrained", architecture="mobilenet_v3_small").run()
    model = open_model_directory(tmp_path / "untrained", "Untrained model")
    assert decide(model, None, sizes=sizes)[0].framing == expected


def test_the_plan_says_how_much_is_seen_and_the_model_remembers(tmp_path: Path) -> None:
    folders = paint_folders(tmp_path / "images", 2, ("blue", "red"), size=(62, 26))
    InitModel(
        output=tmp_path / "untrained",
        architecture="mobilenet_v3_small",
        recipe=Recipe(image_size=32),
    ).run()
    inputs = open_training_inputs(tmp_path / "untrained", folders, folders)
    assert inputs.recipe.framing == "pad"
    assert inputs.size_reason.endswith("; whole images, padded")
    assert ClassifierSpec.from_mapping(inputs.spec.as_mapping()) == inputs.spec
    cropped = Recipe(image_size=32, framing="crop")
    InitModel(output=tmp_path / "cropped", architecture="mobilenet_v3_small", recipe=cropped).run()
    shown = open_training_inputs(tmp_path / "cropped", folders, folders).size_reason
    assert shown.endswith("; centre crops show 32% of an image")
