"""One temperature for all logits."""

import msgspec
import numpy as np
import pytest

from train_pytorch_model.evaluation.calibration import (
    FOLDS,
    MIN_IMAGES,
    Temperature,
    calibrate,
    describe_temperature,
    fit_temperature,
)
from train_pytorch_model.evaluation.metrics import Outcomes, evaluate, losses_of, outcomes_of

NUM_IMAGES, NUM_CATEGORIES = 4000, 5


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


def predicted(
    factor: float, num_images: int = NUM_IMAGES, seed: int = 1
) -> tuple[np.ndarray, Outcomes]:
    """Logits that are too large by a factor, and their outcomes."""
    random = np.random.default_rng(seed)
    right = 2 * random.standard_normal((num_images, NUM_CATEGORIES))
    targets = (softmax(right).cumsum(axis=1) < random.random((num_images, 1))).sum(axis=1)
    logits = (factor * right).astype(np.float32)
    return logits, outcomes_of(targets, softmax(logits.astype(np.float64)))


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_the_temperature_undoes_a_factor_of_the_logits(factor: float) -> None:
    logits, outcomes = predicted(factor)
    temperature = fit_temperature(logits, outcomes)
    assert temperature.value == pytest.approx(factor, rel=0.06)
    assert temperature.before.error > 0.1
    assert temperature.after.error < 0.03
    assert temperature.after.loss < temperature.before.loss
    other_logits, other = predicted(factor, seed=2)  # on which nothing was fitted
    calibrated = calibrate(other, other_logits, temperature.value)
    assert losses_of(calibrated).mean() < losses_of(other).mean()
    assert temperature.after.loss == pytest.approx(losses_of(calibrated).mean(), rel=0.05)


def test_no_temperature_near_the_fitted_one_has_a_lower_loss() -> None:
    logits, outcomes = predicted(2.0)
    best = fit_temperature(logits, outcomes).value
    losses = [
        losses_of(calibrate(outcomes, logits, best * factor)).mean() for factor in (0.98, 1.0, 1.02)
    ]
    assert losses[1] == min(losses)


def test_the_temperature_can_be_written_as_json() -> None:
    temperature = fit_temperature(*predicted(2.0)).value
    assert msgspec.json.decode(msgspec.json.encode(temperature)) == temperature


def test_calibrated_outcomes_are_those_of_the_divided_logits() -> None:
    logits, outcomes = predicted(3.0, 50)
    expected = outcomes_of(outcomes.targets, softmax(logits.astype(np.float64) / 2.5))
    for name, column in vars(calibrate(outcomes, logits, 2.5)).items():
        np.testing.assert_allclose(column, getattr(expected, name), rtol=1e-12)


def test_predictions_that_are_all_right_stay_doubtful() -> None:
    targets = np.arange(2000) % 2
    logits = np.eye(2, dtype=np.float32)[targets]
    outcomes = outcomes_of(targets, softmax(logits.astype(np.float64)))
    temperature = fit_temperature(logits, outcomes)
    assert temperature.value < 1
    assert 0.98 < calibrate(outcomes, logits, temperature.value).confidences.mean() < 1 - 1 / 2002


def test_what_helps_only_the_images_on_which_it_was_fitted_is_not_taken() -> None:
    targets = np.arange(400) % 2
    logits = np.eye(2, dtype=np.float32)[targets]
    logits[::FOLDS] = np.eye(2)[1 - targets[::FOLDS]]  # every prediction of one fold is wrong
    outcomes = outcomes_of(targets, softmax(logits.astype(np.float64)))
    losses = [losses_of(calibrate(outcomes, logits, value)).mean() for value in (0.7, 1.0)]
    assert losses[0] < 0.98 * losses[1]
    temperature = fit_temperature(logits, outcomes)
    assert temperature.value == 1
    assert temperature.after == temperature.before


def test_a_network_that_is_as_sure_as_it_is_right_stays_as_it_is() -> None:
    temperature = fit_temperature(*predicted(1.0))
    assert temperature.value == 1
    assert temperature.after == temperature.before


def test_a_gain_next_to_nothing_is_not_taken() -> None:
    logits, outcomes = predicted(1.03, 100_000)
    losses = [losses_of(calibrate(outcomes, logits, value)).mean() for value in (1.0, 1.03)]
    assert losses[1] < losses[0]
    temperature = fit_temperature(logits, outcomes)
    assert temperature.value == 1
    assert (
        "adjusting them on the validation images would hardly make them better (loss 0.9074"
        in describe_temperature(temperature)
    )


def test_few_images_are_enough_if_the_network_is_far_too_sure() -> None:
    others, other = predicted(1.8, seed=100)
    values = [fit_temperature(*predicted(1.8, 36, seed)).value for seed in range(30)]
    taken = [value for value in values if value != 1]
    assert len(taken) >= 24
    losses = [losses_of(calibrate(other, others, value)).mean() for value in taken]
    assert max(losses) < losses_of(other).mean()


def test_few_images_move_the_temperature_less_than_many() -> None:
    values = [fit_temperature(*predicted(0.3, count)).value for count in (40, NUM_IMAGES)]
    assert 1 > values[0] > values[1]


@pytest.mark.parametrize("kept", [0, MIN_IMAGES - 1])
def test_too_few_logits_give_no_temperature(kept: int) -> None:
    logits, outcomes = predicted(3.0, MIN_IMAGES - 1)
    temperature = fit_temperature(logits[:kept], outcomes)
    assert temperature.value == 1
    assert temperature.before.loss == pytest.approx(evaluate(outcomes, NUM_CATEGORIES).loss)


def test_the_log_says_what_it_changes() -> None:
    logits, outcomes = predicted(3.0)
    temperature = fit_temperature(logits, outcomes)
    assert f"a temperature of {temperature.value:.3f}" in describe_temperature(temperature)
    assert f"to {temperature.after.loss:.4f}" in describe_temperature(temperature)
    as_before = Temperature(1.0, temperature.before, temperature.before)
    assert "those of the network" in describe_temperature(as_before)
