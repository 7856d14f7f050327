"""What `watch` says, in sentences."""

from dataclasses import replace

from train_pytorch_model.quality.drift import Change, Drift
from train_pytorch_model.stories.watch import Watched

LIKE = Drift(
    images=300,
    changes=(),
    accuracy=0.9,
    accuracy_interval=(0.85, 0.95),
    accuracy_before=0.92,
    images_before=500,
    is_enough=True,
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


def test_without_confidences_nothing_is_said_of_the_accuracy() -> None:
    nothing = replace(LIKE, accuracy=float("nan"), accuracy_interval=(float("nan"),) * 2)
    assert "accuracy" not in text_of(nothing)
