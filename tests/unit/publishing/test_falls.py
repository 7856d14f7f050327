"""By how much accuracy and confidence fall where images are degraded, at little cost."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from train_pytorch_model.evaluation.metrics import Outcomes, outcomes_of
from train_pytorch_model.publishing import falls
from train_pytorch_model.publishing.degraded import DEGRADATIONS
from train_pytorch_model.publishing.falls import FallsMeter, images_of_each

BRIGHT = 150


def tell_bright(frames: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Tell bright images from dark ones, the less confidently, the closer they are."""
    logit = (frames.double().mean(dim=(1, 2, 3)) - BRIGHT) / 20
    bright = torch.sigmoid(logit).numpy()
    return np.column_stack([1 - bright, bright]), -logit.abs().numpy()


def images(count: int) -> tuple[Tensor, Outcomes, np.ndarray]:
    """Return frames, dark and bright ones in turns, and what is predicted of them."""
    values = torch.linspace(0, 100, count).byte()
    values[1::2] += 155
    frames = values[:, None, None, None].expand(count, 16, 16, 3).contiguous()
    probabilities, energies = tell_bright(frames)
    return frames, outcomes_of(np.arange(count) % 2, probabilities), energies


def test_what_changes_an_image_much_is_told_from_what_changes_it_little() -> None:
    frames, outcomes, energies = images(40)
    meter = FallsMeter(tell_bright, energies, images=40, of_each=100)
    for start in (0, 16, 32):
        rows = np.arange(start, min(start + 16, 40))
        meter.add(frames[rows], outcomes.select(rows), energies[rows])
    found = meter.falls
    assert found is not None
    of = {
        (each.name, each.strength): values
        for each, *values in zip(
            DEGRADATIONS, found.accuracy, found.confidence, found.rises, strict=True
        )
    }
    assert of["blur", 0.25] == pytest.approx([0, 0, 0], abs=0.01)
    assert of["darker", 0.35][0] == 0.5  # all are dark now
    assert of["contrast", 0.18] == pytest.approx([0, 0, 0], abs=0.01)  # these have none
    assert found.energy == pytest.approx(energies.mean())
    assert found.excess > 0


@pytest.mark.parametrize("of_each", [1, 5])
def test_a_degradation_is_tried_on_no_more_images_than_it_may(of_each: int) -> None:
    seen = 0

    def count(frames: Tensor) -> tuple[np.ndarray, np.ndarray]:
        nonlocal seen
        seen += len(frames)
        return tell_bright(frames)

    frames, outcomes, energies = images(40)
    meter = FallsMeter(count, energies, images=40, of_each=of_each)
    meter.add(frames, outcomes, energies)
    assert seen == of_each * len(DEGRADATIONS)


def test_few_degraded_images_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    predicted = 0

    def degrade(frames: Tensor, seed: int) -> Tensor:  # noqa: ARG001
        nonlocal made
        made += len(frames)
        assert made - predicted <= falls.IMAGES_AT_ONCE
        return frames

    def count(frames: Tensor) -> tuple[np.ndarray, np.ndarray]:
        nonlocal predicted
        predicted += len(frames)
        return tell_bright(frames)

    monkeypatch.setattr(falls, "DEGRADATIONS", [degrade] * 24)
    frames, outcomes, energies = images(40)
    meter = FallsMeter(count, energies, images=40, of_each=40)
    meter.add(frames, outcomes, energies)
    assert made == predicted == 24 * 40
    assert meter.falls is not None
    assert meter.falls.accuracy == [0] * 24


def test_without_images_there_is_nothing_to_tell() -> None:
    assert FallsMeter(tell_bright, np.zeros(1), images=1, of_each=1).falls is None


def plan_of(**changed: Any) -> Any:
    size = SimpleNamespace(num_pixels=100)
    recipe = SimpleNamespace(freeze_backbone=changed.pop("freeze_backbone", False))
    values = {"training": range(2400), "validation": range(100), "framing": size, "recipe": recipe}
    return SimpleNamespace(
        inputs=SimpleNamespace(**values | changed.pop("inputs", {})),
        framings=[size] * 10,
        world=SimpleNamespace(size=changed.pop("processes", 1)),
        cache=SimpleNamespace(views=changed.pop("views", None)),
    )


def test_the_trial_takes_little_of_what_the_training_took() -> None:
    for epochs in (1, 5, 10):
        passes = images_of_each(plan_of(), epochs) * len(DEGRADATIONS)
        assert 0.015 < passes / (epochs * (3 * 2400 + 100)) <= falls.MAX_FRACTION or passes == 0
    assert images_of_each(plan_of(inputs={"training": range(100_000)}), 10) == falls.MAX_IMAGES
    assert images_of_each(plan_of(inputs={"training": range(50)}), 1) == 0
    assert images_of_each(plan_of(processes=2), 10) == images_of_each(plan_of(), 5)
    frozen = images_of_each(plan_of(freeze_backbone=True), 10)
    assert 0 < frozen < images_of_each(plan_of(), 10)
    assert images_of_each(plan_of(freeze_backbone=True, views=object()), 10) == 0
