"""Which images may be mirrored: those that are indistinguishable from their mirror images."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from tests.painting import paint_folders

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.pixel_decisions import MAX_IMAGES, count_classified, decide_flips
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import OpenedInputs, open_training_inputs
from train_pytorch_model.training.fine_tuning import LearningRateFactors
from train_pytorch_model.training.plan import make_plan
from train_pytorch_model.training.plan_text import describe

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"))
NOISE = np.random.default_rng(1).uniform(0, 255, (400, 16, 16))


def inputs_of(folders: Path, recipe: Recipe = Recipe()) -> OpenedInputs:  # noqa: B008 (it is frozen)
    model = folders.parent / "untrained"
    InitModel(output=model, architecture="mobilenet_v3_small", recipe=recipe).run()
    return open_training_inputs(model, folders, folders)


def draw_arrows(root: Path, per_category: int, directions: tuple[str, ...]) -> Path:
    """Arrows of random size at random places, pointing one way in each category."""
    random = np.random.default_rng(2)
    for direction in directions:
        (root / direction).mkdir(parents=True)
        for index in range(per_category):
            image = Image.new("RGB", (32, 32), tuple(random.integers(0, 90, 3).tolist()))
            left, top, size = (int(value) for value in random.integers((2, 2, 10), (8, 8, 20)))
            tip = [(left, top), (left + size, top + size // 2), (left, top + size)]
            ImageDraw.Draw(image).polygon(tip, fill="white")
            if direction == "west":
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            image.save(root / direction / f"{index}.png")
    return root


def test_digits_are_distinguished_from_their_mirror_images() -> None:
    digits, targets = load_digits(return_X_y=True)
    threes = digits.reshape(-1, 8, 8)[targets == 3]
    assert count_classified(threes) > 0.97 * len(threes)
    assert count_classified(threes[:, :, ::-1]) == count_classified(threes)


def test_noise_is_distinguished_by_chance_only() -> None:
    assert 0.4 < count_classified(NOISE) / len(NOISE) < 0.6


@pytest.mark.parametrize("images", [np.zeros((9, 16, 16)), NOISE + NOISE[:, :, ::-1], NOISE[:1]])
def test_symmetric_and_single_images_are_not_distinguished(images: np.ndarray) -> None:
    assert count_classified(images) == 0


@pytest.mark.parametrize(
    ("directions", "per_category"),
    [
        pytest.param(("east", "west"), 60, id="categories are mirror images of each other"),
        pytest.param(
            tuple(f"east{number}" for number in range(20)), 10, id="few images of each category"
        ),
    ],
)
def test_images_with_a_left_and_a_right_are_not_mirrored(
    tmp_path: Path, directions: tuple[str, ...], per_category: int
) -> None:
    inputs = decide_flips(
        inputs_of(draw_arrows(tmp_path / "arrows", per_category, directions)), ALONE
    )
    assert inputs.recipe.horizontal_flip is False
    plan = describe(make_plan(TrainConfig(), inputs, ALONE), LearningRateFactors())["Augmenting"]
    found = re.fullmatch(
        r"none, no flip \((\d+) of (\d+) images are distinguishable from their mirror images\)",
        plan,
    )
    assert found, plan
    distinguished, sampled = (int(number) for number in found.groups())
    assert 0.9 * sampled < distinguished <= sampled <= MAX_IMAGES


def test_few_arrows_are_not_enough_evidence(tmp_path: Path) -> None:
    inputs = decide_flips(inputs_of(draw_arrows(tmp_path / "arrows", 6, ("east", "west"))), ALONE)
    assert (inputs.recipe.horizontal_flip, inputs.flip_reason) == (True, "")


def test_images_without_sides_are_mirrored_even_if_one_cannot_be_read(tmp_path: Path) -> None:
    folders = paint_folders(tmp_path / "images", 40)
    truncated = folders / "blue" / "0.png"
    truncated.write_bytes(truncated.read_bytes()[:-900])
    inputs = decide_flips(inputs_of(folders), ALONE)
    assert (inputs.recipe.horizontal_flip, inputs.flip_reason) == (True, "")
    assert (
        describe(make_plan(TrainConfig(), inputs, ALONE), LearningRateFactors())["Augmenting"]
        == "flip, no crop"
    )


@pytest.mark.parametrize("flip", [True, False])
def test_the_recipe_takes_precedence(tmp_path: Path, flip: bool) -> None:
    arrows = draw_arrows(tmp_path / "arrows", 60, ("east", "west"))
    inputs = decide_flips(inputs_of(arrows, Recipe(horizontal_flip=flip)), ALONE)
    assert (inputs.recipe.horizontal_flip, inputs.flip_reason) == (flip, "")
