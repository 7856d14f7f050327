"""What `watch` says, in sentences."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from train_pytorch_model.errors import ParameterError
from train_pytorch_model.image_classifier.answers import AnyCategories
from train_pytorch_model.quality.drift import Change, Drift
from train_pytorch_model.stories.watch import LOOK_FIRST, Watched, watch, write_watched

LIKE = Drift(
    images=300,
    changes=(),
    accuracy=0.9,
    accuracy_interval=(0.85, 0.95),
    accuracy_before=0.92,
    images_before=500,
    is_enough=True,
    is_measured=True,
)
ADVICE = "label a few dozen of the images and `evaluate`"


def text_of(drift: Drift) -> str:
    return str(Watched(drift, ()))


def test_an_estimate_that_says_little_comes_with_what_to_do() -> None:
    assert "90.0% (85.0% to 95.0%)" in text_of(LIKE)
    assert ADVICE not in text_of(LIKE)
    changed = replace(LIKE, changes=[Change("energy", -9, -5, 0.0001)])
    assert "energy (median -5, was -9)" in text_of(changed)
    assert ADVICE not in text_of(changed)
    assert ADVICE in text_of(replace(changed, accuracy_interval=(0.5, 1.0)))


def test_an_estimate_that_was_not_measured_says_so_where_images_have_changed() -> None:
    assert "too high" not in text_of(replace(LIKE, is_measured=False))
    changed = replace(LIKE, changes=[Change("energy", -9, -5, 0.0001)])
    assert "too high" not in text_of(changed)
    unmeasured = text_of(replace(changed, is_measured=False))
    assert "It is probably too high" in unmeasured
    assert ADVICE in unmeasured


def test_without_confidences_nothing_is_said_of_the_accuracy() -> None:
    nothing = replace(LIKE, accuracy=float("nan"), accuracy_interval=(float("nan"),) * 2)
    assert "accuracy" not in text_of(nothing)


def test_too_few_images_are_not_counted_as_like_the_validation_images() -> None:
    assert Watched(LIKE, ()).numbers["Like the validation images"] == 1
    few = Watched(replace(LIKE, images=3, is_enough=False), ())
    assert "Like the validation images" not in few.numbers
    assert "3 images cannot be compared" in str(few)


def test_a_model_of_lists_is_refused_before_its_answers_are_read(tmp_path: Path) -> None:
    model: Any = SimpleNamespace(root=tmp_path, answers=AnyCategories((0.5,)), categories=("a",))
    with pytest.raises(ParameterError, match="measure it with `evaluate`, on labelled images"):
        watch(model, [tmp_path / "missing.json"])


def test_a_spreadsheet_shows_names_that_strangers_have_sent(tmp_path: Path) -> None:
    name = "=cmd|' /C calc'!A0"
    write_watched(Watched(LIKE, [(name, "ants", 0.5, 1.0)]), tmp_path / "watched")
    row = (tmp_path / "watched" / LOOK_FIRST).read_text().splitlines()[1]
    assert row == f"'{name},ants,0.500000,1.000000"


def test_numbers_of_any_size_are_written_without_an_exponent() -> None:
    changes = [
        Change("pixels", 10_000, 182_730.5, 0.0001),
        Change("energy", -1.4271, 0.00312, 0.01),
    ]
    text = text_of(replace(LIKE, changes=changes))
    assert "size in pixels (median 182,730, was 10,000)" in text
    assert "energy (median 0.00312, was -1.43)" in text
