"""The recipe: ranges, unknown entries, and conversion to and from plain values."""

import math
from dataclasses import fields
from typing import Any

import pytest

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import ParameterError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image_size": 7}, "--image-size should be from 8 to 4096; it is 7."),
        ({"image_size": 4097}, "--image-size should be from 8 to 4096; it is 4097."),
        ({"image_size": (32, 5)}, r"--image-size should be from 8 to 4096; it is \(32, 5\)."),
        (
            {"training_size": (5, 32)},
            r"--training-size should be from 8 to 4096; it is \(5, 32\).",
        ),
        (
            {"image_size": (64, 48), "training_size": 64},
            "--training-size should be at most --image-size; it is 64.",
        ),
        (
            {"early_size": 63},
            "--early-size should be at least 64, or the training size; it is 63.",
        ),
        (
            {"training_size": 96, "early_size": (96, 97)},
            r"--early-size should be at most --training-size; it is \(96, 97\).",
        ),
        (
            {"image_size": 64, "early_size": 65},
            "--early-size should be at most --image-size; it is 65.",
        ),
        (
            {"crop_fraction": 0.0},
            "--crop-fraction should be above 0 and at most 1; it is 0.0.",
        ),
        (
            {"crop_fraction": 1.01},
            "--crop-fraction should be above 0 and at most 1; it is 1.01.",
        ),
        (
            {"crop_fraction": math.nan},
            "--crop-fraction should be above 0 and at most 1; it is nan.",
        ),
        ({"crop_area": 0.0}, "--crop-area should be above 0 and at most 1; it is 0.0."),
        ({"crop_area": 1.01}, "--crop-area should be above 0 and at most 1; it is 1.01."),
        ({"crop_area": math.nan}, "--crop-area should be above 0 and at most 1; it is nan."),
        (
            {"label_smoothing": 1.0},
            "--label-smoothing should be at least 0 and below 1; it is 1.0.",
        ),
        (
            {"label_smoothing": -0.1},
            "--label-smoothing should be at least 0 and below 1; it is -0.1.",
        ),
        (
            {"label_smoothing": math.nan},
            "label-smoothing should be at least 0 and below 1; it is nan.",
        ),
        ({"cutmix": 1.1}, "--cutmix should be from 0 to 1; it is 1.1."),
        (
            {"mean": (0.5, 0.5, 127.5), "std": (0.5, 0.5, 0.5)},
            r"--mean should be three values from 0 to 1; it is \(0.5, 0.5, 127.5\).",
        ),
        (
            {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.0, 0.5)},
            r"--std should be three values above 0 and at most 1; it is \(0.5, 0.0, 0.5\).",
        ),
        ({"mean": (0.5, 0.5, 0.5)}, "--mean is given without --std: give both, or neither."),
        ({"std": (0.5, 0.5, 0.5)}, "--std is given without --mean: give both, or neither."),
    ],
)
def test_an_entry_out_of_range_is_refused_with_its_range(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        Recipe(**values)


def test_all_entries_out_of_range_are_named_at_once() -> None:
    with pytest.raises(ParameterError) as raised:
        Recipe(image_size=1, crop_fraction=2.0, label_smoothing=3.0)
    assert [line.split()[0] for line in str(raised.value).splitlines()] == [
        "--image-size",
        "--crop-fraction",
        "--label-smoothing",
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"image_size": 8},
        {"image_size": (4096, 8)},
        {"image_size": 64, "training_size": (8, 64)},
        {"image_size": 96, "training_size": 80, "early_size": (64, 80)},
        {"training_size": 32, "early_size": (32, 32)},
        {"image_size": (32, 48), "early_size": (32, 48)},
        {"crop_fraction": 1.0},
        {"crop_area": 1.0},
        {"label_smoothing": 0.0},
        {"label_smoothing": None},
        {"mean": (0.0, 0.5, 1.0), "std": (1.0, 1.0, 1.0)},
    ],
)
def test_entries_at_the_limits_of_their_range_are_accepted(values: dict[str, Any]) -> None:
    recipe = Recipe(**values)
    assert {name: getattr(recipe, name) for name in values} == values


def test_an_entry_of_a_file_is_named_as_the_file_names_it() -> None:
    with pytest.raises(ParameterError, match=r"^Recipe: crop_area should be above 0"):
        Recipe.from_mapping({"crop_area": 0.0})
    with pytest.raises(ParameterError, match=r"^Recipe: --mean is given without --std"):
        Recipe.from_mapping({"mean": [0.5, 0.5, 0.5]})


def test_unknown_entries_are_listed_with_the_known_ones() -> None:
    with pytest.raises(ParameterError) as raised:
        Recipe.from_mapping({"mixup": 1, "image_size": 32, "cutout": 2})
    known = ", ".join(field.name for field in fields(Recipe))
    assert str(raised.value) == (
        f"Recipe: unknown entries:\n  mixup\n  cutout\nThe entries are {known}."
    )


def test_keys_that_are_not_strings_are_unknown_entries() -> None:
    with pytest.raises(ParameterError, match=r"unknown entries:\n  3\n"):
        Recipe.from_mapping({3: "x"})  # type: ignore[dict-item]  # as YAML may give them


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"horizontal_flip": "no"}, "Recipe: horizontal_flip: Invalid enum value 'no'; it is no."),
        (
            {"image_size": True},
            r"Recipe: image_size: Expected `int \| array \| null`, got `bool`; it is True.",
        ),
        (
            {"image_size": [32]},
            r"Recipe: image_size: Expected `array` of length 2, got 1; it is \[32\].",
        ),
        ({"augmentation": "mixup"}, "Recipe: augmentation: Invalid enum value 'mixup'"),
        ({"precision": "float64"}, "Recipe: precision: Invalid enum value 'float64'"),
        (
            {"balance_classes": None},
            "Recipe: balance_classes: Expected `bool`, got `null`; it is None.",
        ),
        ({"image_size": 2}, "Recipe: image_size should be from 8 to 4096; it is 2."),
    ],
)
def test_an_entry_of_the_wrong_type_is_named(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Recipe.from_mapping(entries)


@pytest.mark.parametrize(
    ("recipe", "mapping"),
    [
        (Recipe(), {}),
        (Recipe(image_size=64), {"image_size": 64}),
        (
            Recipe(
                image_size=(96, 112),
                training_size=(80, 96),
                early_size=(64, 80),
                crop_fraction=1.0,
                augmentation="padded-crop",
                horizontal_flip=False,
                label_smoothing=0.1,
                cutmix=0.5,
                balance_classes=True,
                freeze_backbone=True,
                optimizer="adamw",
                precision="float32",
                mean=(0.1, 0.2, 0.3),
                std=(0.4, 0.5, 0.6),
            ),
            {
                "image_size": [96, 112],
                "training_size": [80, 96],
                "early_size": [64, 80],
                "crop_fraction": 1.0,
                "augmentation": "padded-crop",
                "horizontal_flip": False,
                "label_smoothing": 0.1,
                "cutmix": 0.5,
                "balance_classes": True,
                "freeze_backbone": True,
                "optimizer": "adamw",
                "precision": "float32",
                "mean": [0.1, 0.2, 0.3],
                "std": [0.4, 0.5, 0.6],
            },
        ),
    ],
)
def test_a_recipe_survives_a_round_trip_through_plain_values(
    recipe: Recipe, mapping: dict[str, Any]
) -> None:
    assert recipe.as_mapping() == mapping
    assert Recipe.from_mapping(mapping) == recipe
