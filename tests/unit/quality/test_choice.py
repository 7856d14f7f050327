import numpy as np
import pytest

from train_pytorch_model.quality.choice import Entry, choose, nested_hits

RANDOM = np.random.default_rng(0)


def entry(name: str, speed: float, loss: float, accuracy: float, images: int = 200) -> Entry:
    """Return an entry whose images differ little from each other in loss."""
    is_hit = np.arange(images) < round(accuracy * images)
    return Entry(name, speed, loss + RANDOM.normal(scale=0.1, size=images), is_hit)


def test_the_lowest_loss_wins() -> None:
    chosen, reason = choose([entry("a", 10, 0.9, 0.7), entry("b", 5, 0.6, 0.8)])
    assert chosen.name == "b"
    assert reason.startswith("b has the lowest loss on images that its classifier has not learned")


def test_a_faster_one_that_is_as_good_comes_first() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    noise = RANDOM.normal(scale=0.1, size=200)
    same = Entry("fast", 10, best.losses + noise - noise.mean() + 0.001, best.is_hit)
    chosen, reason = choose([best, same])
    assert chosen.name == "fast"
    assert "fast is 2.0 times as fast as slow" in reason
    assert "of 0 images that only one of the two recognizes, it recognizes 0" in reason


def test_one_that_is_hardly_faster_does_not() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    same = Entry("fast", 6, best.losses + 1e-6, best.is_hit)
    assert choose([best, same])[0].name == "slow"


def test_a_faster_one_that_recognizes_fewer_does_not() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    worse = Entry("fast", 10, best.losses + 1e-4, np.arange(200) < 140)
    assert choose([best, worse])[0].name == "slow"


def test_a_faster_one_with_a_higher_loss_does_not() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    worse = Entry("fast", 10, best.losses + 0.2, best.is_hit)
    assert choose([best, worse])[0].name == "slow"


def test_a_loss_that_is_not_finite_never_wins() -> None:
    broken = Entry("broken", 10, np.full(200, np.nan), np.ones(200, bool))
    assert choose([broken, entry("fine", 5, 2.0, 0.4)])[0].name == "fine"


def test_the_only_candidate_is_taken() -> None:
    assert choose([entry("a", 10, 0.9, 0.7)])[1] == "a is the only candidate that raced."


@pytest.mark.parametrize(("fold", "expected"), [(0, True), (1, False)])
def test_hits_of_a_fold_are_of_the_classifier_that_is_best_without_it(
    fold: int, expected: bool
) -> None:
    folds = np.array([0, 0, 1, 1])
    hits = [np.ones(4, bool), np.zeros(4, bool)]
    losses_without = [np.array([0.5, 0.7]), np.array([0.6, 0.6])]
    nested = nested_hits(hits, losses_without, folds)
    assert (nested[folds == fold] == expected).all()
