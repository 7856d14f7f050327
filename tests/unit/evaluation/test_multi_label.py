"""Metrics of images with any number of categories agree with scikit-learn's."""

import math
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from train_pytorch_model.evaluation.calibration import fit_temperature
from train_pytorch_model.evaluation.likelihood import sigmoid
from train_pytorch_model.evaluation.metrics import join
from train_pytorch_model.evaluation.multi_label import (
    MultiLabelEvaluation,
    MultiLabelOutcomes,
    multi_label_outcomes,
)
from train_pytorch_model.evaluation.multi_label_tables import label_rows, write_multi_label_tables
from train_pytorch_model.evaluation.thresholds import best_threshold, f1_of, fit_thresholds
from train_pytorch_model.evaluation.verdict import describe_trust, verdict

CATEGORIES = ("a", "b", "c", "d")


def made_up(num_images: int = 200, strength: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Targets (N, 4), bool, and logits (N, 4) that tell something about them."""
    random = np.random.default_rng(0)
    targets = random.random((num_images, 4)) < np.array([0.5, 0.3, 0.1, 0.2])
    logits = strength * (targets - 0.5) + random.normal(size=targets.shape)
    return targets, logits


def evaluated(thresholds: float = 0.4) -> tuple[MultiLabelOutcomes, MultiLabelEvaluation]:
    targets, logits = made_up()
    outcomes = multi_label_outcomes(targets, sigmoid(logits), [thresholds] * 4)
    return outcomes, outcomes.evaluate(4, np.full(4, thresholds))


def test_all_metrics_are_scikit_learns() -> None:
    outcomes, found = evaluated()
    targets = outcomes.targets
    answered = outcomes.answered
    precisions = sklearn_metrics.average_precision_score(
        targets, outcomes.probabilities, average=None
    )
    np.testing.assert_allclose(found.average_precision, precisions, rtol=1e-12)
    assert found.mean_average_precision == pytest.approx(precisions.mean(), rel=1e-12)
    for average, ours in (("micro", found.micro), ("macro", found.macro)):
        precision, recall, f1, _ = sklearn_metrics.precision_recall_fscore_support(
            targets, answered, average=average
        )
        assert (ours.precision, ours.recall, ours.f1) == pytest.approx((precision, recall, f1))
    assert found.accuracy == sklearn_metrics.accuracy_score(targets, answered)
    losses = sklearn_metrics.log_loss(targets[:, 0], outcomes.probabilities[:, 0])
    of_first = multi_label_outcomes(targets[:, :1], outcomes.probabilities[:, :1], [0.5])
    assert of_first.losses.mean() == pytest.approx(losses)


def test_the_most_probable_category_is_among_the_labels() -> None:
    probabilities = np.array([[0.4, 0.3], [0.2, 0.1], [0.9, 0.8]])
    targets = np.array([[True, True], [False, True], [False, False]])
    found = multi_label_outcomes(targets, probabilities, [0.5, 0.5]).evaluate(2, np.full(2, 0.5))
    assert found.top1 == 0.5  # the image without a category does not count
    assert found.top5 == 1.0
    assert (found.unlabelled, found.labels) == (1, 3)


def test_mistakes_are_the_most_confident_first_and_missed_labels_the_least_probable() -> None:
    probabilities = np.array([[0.9, 0.2], [0.6, 0.4]])
    targets = np.array([[False, True], [False, True]])
    found = multi_label_outcomes(targets, probabilities, [0.5, 0.5]).evaluate(2, np.full(2, 0.5))
    assert found.false_positives.tolist() == [[0, 0], [1, 0]]
    assert found.missed.tolist() == [[0, 1], [1, 1]]
    assert found.together.tolist() == [[0, 0], [0, 2]]
    assert math.isnan(found.average_precision[0])
    assert found.mean_average_precision == 1.0
    row = label_rows(found, ("x", "y"))[0]
    assert (row.average_precision, row.recall, row.precision) == (None, None, 0.0)


def test_parts_of_several_processes_are_joined() -> None:
    outcomes, _ = evaluated()
    halves = [outcomes.select(np.arange(100)), outcomes.select(np.arange(100, 200))]
    joined = join(halves)
    for name, values in vars(outcomes).items():
        np.testing.assert_array_equal(getattr(joined, name), values)


def test_a_threshold_has_the_highest_f1() -> None:
    targets, logits = made_up()
    scores = sigmoid(logits)[:, 2]
    threshold = best_threshold(targets[:, 2], scores)
    highest = max(f1_of(targets[:, 2], scores >= other) for other in scores)
    assert f1_of(targets[:, 2], scores >= threshold) == highest
    assert threshold not in scores  # rounding elsewhere changes no answer


def test_equal_scores_are_answered_alike() -> None:
    is_true = np.array([True, False, True, False])
    assert best_threshold(is_true, np.array([0.5, 0.5, 0.5, 0.1])) == pytest.approx(0.3)


def test_validation_images_are_answered_by_thresholds_of_others() -> None:
    targets, logits = made_up()
    thresholds, answered = fit_thresholds(targets, sigmoid(logits - 1.0))
    assert (thresholds < 0.5).any()
    by_default = sigmoid(logits - 1.0) >= 0.5
    for index in range(4):
        out_of_fold = f1_of(targets[:, index], answered[:, index])
        assert out_of_fold >= f1_of(targets[:, index], by_default[:, index])


def test_few_images_leave_a_threshold_at_a_half() -> None:
    targets = np.zeros((40, 1), dtype=bool)
    targets[:4] = True
    thresholds, answered = fit_thresholds(targets, np.where(targets, 0.4, 0.1))
    assert thresholds.tolist() == [0.5]
    assert not answered.any()


def test_a_temperature_mends_probabilities_that_are_too_sure() -> None:
    targets, logits = made_up(2000)
    sharp = 4 * logits
    outcomes = multi_label_outcomes(targets, sigmoid(sharp), [0.5] * 4)
    found = fit_temperature(sharp.astype(np.float32), outcomes)
    assert found.value > 1.5
    assert found.after.loss < found.before.loss


def test_the_verdict_names_the_weakest_category_and_what_is_found() -> None:
    _, found = evaluated()
    text = verdict(found, CATEGORIES)
    worst = CATEGORIES[int(found.average_precision.argmin())]
    assert text.startswith("Better than guessing: mean average precision ")
    assert f"weakest: {worst!r}" in text
    assert f"of the {found.labels:,} labels" in text
    assert "probabilities" in describe_trust(found)


def test_a_model_that_guesses_is_said_to() -> None:
    targets, logits = made_up(strength=0.0)
    outcomes = multi_label_outcomes(targets, sigmoid(logits), [0.5] * 4)
    found = outcomes.evaluate(4, np.full(4, 0.5))
    assert verdict(found, CATEGORIES).startswith("The model is no better than guessing")


def test_tables_have_a_row_for_each_category_and_each_pair(tmp_path: Path) -> None:
    _, found = evaluated()
    write_multi_label_tables(tmp_path, found, CATEGORIES, [])
    lines = (tmp_path / "co_occurrence.csv").read_text().splitlines()
    assert lines[0] == "category,a,b,c,d"
    assert lines[1].split(",")[1] == str(found.per_class.support[0])
    assert len((tmp_path / "per_class.csv").read_text().splitlines()) == 5
    assert (tmp_path / "mistakes.csv").read_text().startswith("file_name,category,kind,")
    assert (tmp_path / "curves.csv").read_text().startswith("category,recall,precision\na,")
