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
    assert reason == (
        "b has the lowest loss on images that its classifier has not learned from,"
        f" {chosen.loss:.3f}."
    )


def differing(best: Entry, name: str, speed: float, more: float, noise: float) -> Entry:
    """Return an entry whose losses are so much higher on average, and differ by such a noise."""
    differences = RANDOM.normal(scale=noise, size=len(best.losses))
    losses = best.losses + differences - differences.mean() + more
    return Entry(name, speed, losses, best.is_hit)


def test_a_faster_one_that_is_surely_about_as_good_comes_first() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    chosen, reason = choose([best, differing(best, "fast", 10, more=0.006, noise=0.01)])
    assert chosen.name == "fast"
    assert reason == (
        "fast is 2.0 times as fast as slow, which has the lowest loss, and about as good: its loss"
        " is at most 2% higher, with a certainty of 95%."
    )


def test_a_faster_one_of_which_that_is_not_sure_does_not() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    others = [
        differing(best, "fast", 10, more=0.006, noise=0.5),
        differing(best, "faster", 20, more=0.006, noise=0.5),
    ]
    chosen, reason = choose([best, *others])
    assert chosen.name == "slow"
    assert reason.endswith("do not tell for sure whether it is better than fast or faster.")


def test_one_that_is_hardly_faster_does_not() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    same = Entry("fast", 6, best.losses + 1e-6, best.is_hit)
    assert choose([best, same])[0].name == "slow"


def test_a_faster_one_that_is_surely_worse_does_not() -> None:
    best = entry("slow", 5, 0.6, 0.8)
    assert choose([best, differing(best, "fast", 10, more=0.02, noise=0.01)])[0].name == "slow"


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
