"""The metrics of an evaluation, with scikit-learn as the reference."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    log_loss,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)

from train_pytorch_model.evaluation.metrics import (
    NUM_BINS,
    THRESHOLDS,
    TINY,
    Confusion,
    Evaluation,
    coverage_of,
    evaluate,
    join,
    outcomes_of,
)
from train_pytorch_model.evaluation.tables import category_rows, confused_rows, worst_first


def draw(seed: int, images: int, classes: int, absent: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Targets (N,) and probabilities (N, C), better than chance; the last `absent` classes have no
    image.
    """
    random = np.random.default_rng(seed)
    targets = random.integers(0, classes - absent, images)
    logits = random.normal(size=(images, classes)) * 2
    logits[np.arange(images), targets] += 2
    probabilities = np.exp(logits)
    return targets, probabilities / probabilities.sum(axis=1, keepdims=True)


def evaluated(targets: np.ndarray, probabilities: np.ndarray) -> Evaluation:
    """The evaluation of all images at once."""
    return evaluate(outcomes_of(targets, probabilities), probabilities.shape[1])


def of_rows(targets: list[int], rows: list[list[float]]) -> Evaluation:
    """The evaluation of literal targets and probabilities."""
    return evaluated(np.array(targets), np.array(rows))


def matrix(confusion: Confusion) -> np.ndarray:
    """The dense matrix, (C, C)."""
    return np.stack(list(confusion.rows()))


@pytest.mark.parametrize(
    ("images", "classes", "absent"), [(1, 2, 0), (50, 3, 0), (400, 12, 3), (300, 100, 40)]
)
def test_every_metric_equals_scikit_learns(images: int, classes: int, absent: int) -> None:
    targets, probabilities = draw(classes, images, classes, absent)
    found, labels = evaluated(targets, probabilities), np.arange(classes)
    predicted = probabilities.argmax(axis=1)
    assert found.images == images
    assert found.accuracy == pytest.approx(accuracy_score(targets, predicted))
    assert found.correct == accuracy_score(targets, predicted, normalize=False)
    assert found.loss == pytest.approx(log_loss(targets, probabilities, labels=labels))
    assert found.mean_confidence == pytest.approx(probabilities.max(axis=1).mean())
    if classes > 5:
        assert found.top5 == pytest.approx(
            top_k_accuracy_score(targets, probabilities, k=5, labels=labels)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about classes without an image
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(targets, predicted))
    expected = confusion_matrix(targets, predicted, labels=labels)
    np.testing.assert_array_equal(matrix(found.confusion), expected)

    expected = precision_recall_fscore_support(targets, predicted, labels=labels, zero_division=0)
    per_class = found.per_class
    for mine, theirs in zip(
        (per_class.precision, per_class.recall, per_class.f1, per_class.support),
        expected,
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs)
    for averages, name in ((found.macro, "macro"), (found.weighted, "weighted")):
        precision, recall, f1, _ = precision_recall_fscore_support(
            targets, predicted, average=name, zero_division=0
        )
        assert (averages.precision, averages.recall, averages.f1) == pytest.approx(
            (precision, recall, f1)
        )


@pytest.mark.parametrize(("images", "classes"), [(1, 2), (50, 3), (400, 12)])
def test_the_calibration_error_is_that_of_guo_et_al(images: int, classes: int) -> None:
    targets, probabilities = draw(classes, images, classes)
    confidences, is_hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets
    error = 0.0
    for place in range(NUM_BINS):
        group = (confidences > place / NUM_BINS) & (confidences <= (place + 1) / NUM_BINS)
        if group.any():
            error += group.sum() / images * abs(is_hit[group].mean() - confidences[group].mean())
    calibration = evaluated(targets, probabilities).calibration
    assert calibration.error == pytest.approx(error)
    bins = calibration.bins
    assert sum(each.images for each in bins) == images
    assert sum((each.accuracy or 0) * each.images for each in bins) == pytest.approx(is_hit.sum())
    assert sum((each.confidence or 0) * each.images for each in bins) == pytest.approx(
        confidences.sum()
    )


@pytest.mark.parametrize(
    ("hits", "images"), [(0, 1), (1, 1), (3, 4), (0, 100), (50, 100), (9_999, 10_000)]
)
def test_the_accuracy_interval_is_wilsons(hits: int, images: int) -> None:
    probabilities = np.array([[1.0, 0.0]] * hits + [[0.0, 1.0]] * (images - hits))
    evaluation = evaluate(outcomes_of(np.zeros(images, np.int64), probabilities), 2)
    expected = binomtest(hits, images).proportion_ci(method="wilson")
    assert evaluation.accuracy_interval == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_a_confidence_bin_includes_its_upper_edge() -> None:
    bins = of_rows([0, 0, 1], [[0.6, 0.4], [1.0, 0.0], [0.5, 0.5]]).calibration.bins
    assert (bins[0].lower, bins[-1].upper) == (0, 1)
    assert [
        (index, each.images, each.accuracy, each.confidence)
        for index, each in enumerate(bins)
        if each.images
    ] == [(7, 1, 0, 0.5), (8, 1, 1, 0.6), (14, 1, 1, 1)]
    assert (bins[0].accuracy, bins[0].confidence) == (None, None)


def test_a_perfect_model_has_perfect_metrics() -> None:
    found = of_rows([0, 1, 2, 1], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]])
    assert (found.accuracy, found.top5, found.balanced_accuracy, found.macro.f1) == (1, 1, 1, 1)
    assert str(found.loss) == "0.0"
    assert found.calibration.error == 0
    assert len(found.mistakes) == 0
    assert confused_rows(found, "abc", 10) == []


def test_a_probability_of_zero_costs_a_finite_loss() -> None:
    assert of_rows([0], [[0.0, 1.0]]).loss == pytest.approx(-np.log(TINY))


def test_ties_go_to_the_first_category() -> None:
    rows = [[0.4, 0.4, 0.2]]
    assert of_rows([0], rows).accuracy == 1
    assert of_rows([1], rows).accuracy == 0
    seven = [[1 / 7] * 7]
    assert [of_rows([target], seven).top5 for target in range(7)] == [1, 1, 1, 1, 1, 0, 0]


def test_undefined_metrics_are_marked() -> None:
    # Category 1 has no image, category 2 is never predicted, category 3 neither occurs nor is
    # predicted.
    evaluation = of_rows([0, 2], [[0.9, 0.1, 0, 0], [0.1, 0.9, 0, 0]])
    rows = category_rows(evaluation.per_class, "abcd")
    assert [row.precision is not None for row in rows] == [True, True, False, False]
    assert [row.recall is not None for row in rows] == [True, False, True, False]
    assert [row.f1 is not None for row in rows] == [True, True, True, False]
    assert (evaluation.per_class.support > 0).tolist() == [True, False, True, False]
    assert [row.category for row in worst_first(evaluation, "abcd")] == ["c", "b", "a", "d"]


def test_mistakes_are_sorted_by_descending_confidence_then_order() -> None:
    rows = [[0.2, 0.8], [0.9, 0.1], [0.3, 0.7], [0.1, 0.9], [0.2, 0.8]]
    assert of_rows([0, 0, 0, 0, 0], rows).mistakes.tolist() == [3, 0, 4, 2]


def test_the_largest_confusions_come_first() -> None:
    targets, predicted = [0, 0, 0, 1, 1, 2, 2, 2], [1, 1, 0, 2, 1, 0, 0, 0]
    evaluation = of_rows(targets, np.eye(3)[predicted].tolist())
    pairs = [("c", "a", 3), ("a", "b", 2), ("b", "c", 1)]
    found = confused_rows(evaluation, "abc", 10)
    assert [(row.category, row.predicted, row.images) for row in found] == pairs
    assert confused_rows(evaluation, "abc", 2) == found[:2]


def test_a_matrix_of_many_categories_is_stored_sparsely() -> None:
    rows = np.zeros((2, 50_000))
    rows[:, 49_999] = 1
    confusion = evaluated(np.array([49_999, 7]), rows).confusion  # dense, 20 GB
    assert confusion.targets.tolist() == [7, 49_999]
    assert confusion.predicted.tolist() == [49_999, 49_999]


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_batches_give_the_metrics_of_the_whole(seed: int, sizes: list[int]) -> None:
    targets, probabilities = draw(seed, sum(sizes) + 1, 4)
    ends = np.cumsum(sizes)
    parts = [
        outcomes_of(*batch)
        for batch in zip(np.split(targets, ends), np.split(probabilities, ends), strict=True)
    ]
    whole, together = evaluated(targets, probabilities), evaluate(join(parts), 4)
    assert together.loss == whole.loss
    assert together.calibration.error == whole.calibration.error
    np.testing.assert_array_equal(matrix(together.confusion), matrix(whole.confusion))
    np.testing.assert_array_equal(together.mistakes, whole.mistakes)


def test_rows_of_the_coverage_count_the_images_with_at_least_that_confidence() -> None:
    random = np.random.default_rng(1)
    confidences = random.uniform(0.4, 1, 300).round(2)  # some are exactly a threshold
    is_hit = random.random(300) < confidences
    coverage = coverage_of(confidences, is_hit)
    assert [row.threshold for row in coverage.rows] == list(THRESHOLDS)
    for row in coverage.rows:
        answered = confidences >= row.threshold
        assert row.images == answered.sum() > 0
        assert row.share == pytest.approx(answered.mean())
        assert row.accuracy == pytest.approx(is_hit[answered].mean())


def test_the_curve_of_the_coverage_ends_at_the_accuracy_of_all_images() -> None:
    coverage = coverage_of(np.array([0.9, 0.3, 0.6, 0.8]), np.array([True, False, False, True]))
    assert len(coverage.accuracies) == 100
    assert [coverage.accuracies[percent - 1] for percent in (1, 25, 50, 75, 100)] == [
        1,
        1,
        1,
        2 / 3,
        0.5,
    ]
    assert coverage.rows[-1].accuracy is None


def test_a_single_image_is_enough_for_a_coverage() -> None:
    assert coverage_of(np.array([1.0]), np.array([False])).accuracies == [0.0] * 100
