"""Candidates of a race that are named: which options make them."""

import pytest

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.stories.race_candidates import _of_name

DINO = "timm:vit_small_patch14_dinov2.lvd142m"


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [(DINO, None, 224), (DINO, 140, 140), ("resnet18", None, None)],
)
def test_a_candidate_races_at_the_size_that_is_given_or_known_to_be_enough(
    name: str, given: int | None, expected: int | None
) -> None:
    options = FitOptions(minutes=3, recipe=Recipe(image_size=given))
    assert _of_name(options, name).recipe.image_size == expected
