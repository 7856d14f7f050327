"""When images are told to be unlike the validation images, and what their accuracy is taken for."""

import msgspec
import numpy as np
import pytest
from numpy.random import Generator, default_rng

from train_pytorch_model.formats.histograms import Histograms
from train_pytorch_model.quality.drift import (
    CATEGORIES,
    FALSE_ALARMS,
    Drift,
    compare,
    histograms_of,
)

NUM_CATEGORIES = 10
Images = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


def images(rng: Generator, count: int, shift: float = 0.0) -> Images:
    """Draw features, confidences and predictions; a shift raises energies, lowers confidences."""
    confidences = rng.beta(8 / (1 + shift), 1, count)
    features = {
        "energy": rng.normal(-8 + shift, 1, count),
        "confidence": confidences,
        "brightness": rng.beta(4, 4, count),
        "aspect_ratio": rng.choice([0.75, 1.0, 4 / 3], count),
        "pixels": np.full(count, 1024.0),
    }
    return features, confidences, rng.integers(NUM_CATEGORIES, size=count)


def validated(rng: Generator, count: int = 500) -> Histograms:
    """Return the histograms of calibrated images."""
    features, confidences, predicted = images(rng, count)
    is_hit = rng.random(count) < confidences
    return histograms_of(features, confidences, predicted, is_hit, NUM_CATEGORIES)


def features_of(drift: Drift) -> set[str]:
    return {change.feature for change in drift.changes}


def test_images_of_the_same_kind_raise_hardly_any_alarm() -> None:
    rng = default_rng(0)
    alarms = [not compare(validated(rng), *images(rng, 300)).is_like for _ in range(200)]
    assert sum(alarms) <= 2
    assert FALSE_ALARMS < 0.01


def test_a_fall_of_the_confidence_is_nearly_always_found() -> None:
    rng = default_rng(1)
    drifts = [compare(validated(rng), *images(rng, 300, shift=0.5)) for _ in range(40)]
    found = [{"energy", "confidence"} & features_of(drift) for drift in drifts]
    assert sum(map(bool, found)) >= 36
    assert np.mean([drift.accuracy_before - drift.accuracy for drift in drifts]) > 0.02


def test_a_few_images_unlike_all_others_are_found() -> None:
    rng = default_rng(2)
    features, confidences, predicted = images(rng, 300)
    features["energy"][:25] = 0.0
    drift = compare(validated(rng, 1000), features, confidences, predicted)
    assert features_of(drift) == {"energy"}
    assert drift.changes[0].p_value < FALSE_ALARMS


def test_a_part_that_is_somewhat_worse_is_found() -> None:
    rng = default_rng(8)
    found = 0
    for _ in range(20):
        features, confidences, predicted = images(rng, 300)
        features["energy"][:45] += 1.7
        drift = compare(validated(rng, 800), features, confidences, predicted)
        found += "energy" in features_of(drift)
    assert found >= 17


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        ("pixels", np.full(300, 1025.0)),
        ("pixels", np.full(300, 900.0)),
        ("aspect_ratio", np.full(300, 1.0)),
        ("brightness", np.full(300, 0.5)),
    ],
)
def test_a_change_of_the_camera_is_found(feature: str, values: np.ndarray) -> None:
    rng = default_rng(3)
    features, confidences, predicted = images(rng, 300)
    drift = compare(validated(rng), features | {feature: values}, confidences, predicted)
    assert features_of(drift) == {feature}
    assert drift.changes[0].now == values[0]


def test_other_categories_are_found_whatever_their_number() -> None:
    rng = default_rng(4)
    features, confidences, predicted = images(rng, 300)
    predicted[:150] = 3
    assert features_of(compare(validated(rng), features, confidences, predicted)) == {CATEGORIES}
    many = histograms_of(features, confidences, np.arange(300), np.ones(300, bool), 1000)
    assert len(many.categories) == 41
    assert compare(many, features, confidences, np.arange(300)).is_like


def test_few_images_say_nothing_and_unknown_values_do_not_count() -> None:
    rng = default_rng(5)
    features, confidences, predicted = images(rng, 10, shift=2)
    drift = compare(validated(rng), features, confidences, predicted)
    assert (drift.is_enough, drift.is_like) == (False, True)
    assert 0 <= drift.accuracy_interval[0] < drift.accuracy <= drift.accuracy_interval[1] <= 1
    features, confidences, predicted = images(rng, 300)
    unknown = features | {"pixels": np.full(300, np.nan)}
    assert compare(validated(rng), unknown, confidences, np.full(300, -1)).is_like
    nothing = compare(validated(rng), features, np.empty(0), np.empty(0, np.int64))
    assert (nothing.images, nothing.is_enough) == (0, False)


def test_what_is_kept_is_small() -> None:
    features, confidences, predicted = images(default_rng(7), 50_000)
    hits = np.arange(50_000) % 10 > 0
    histograms = histograms_of(features, confidences, predicted * 100, hits, 1000)
    assert len(msgspec.json.encode(histograms)) < 2400
