"""The accuracy without what training has seen, and what is said about it."""

import numpy as np

from train_pytorch_model.quality.training_look_alikes import TrainingLookAlikes


def test_the_accuracy_without_twins_is_of_the_other_images() -> None:
    looks_alike, is_hit = (
        np.array([True, False, False, True, False]),
        np.array([True, True, True, False]),
    )
    look_alikes = TrainingLookAlikes.of(looks_alike, is_hit[~looks_alike[[0, 1, 3, 4]]])
    assert look_alikes.accuracy_without == 0.5
    assert "2 of 5 validation images look like a training image" in look_alikes.describe(0.75)
    assert "on the others it is 50.0%" in look_alikes.describe(0.75)
    assert "the exact match of 75.0% includes" in look_alikes.describe(0.75, "exact match")
    one = TrainingLookAlikes.of(np.arange(5) == 0, is_hit)
    assert "1 of 5 validation images looks like a training image" in one.describe(0.75)
    assert TrainingLookAlikes.of(np.ones(5, bool), is_hit[:0]).accuracy_without is None
    assert TrainingLookAlikes.of(np.zeros(5, bool), is_hit).describe(0.75) == ""
