"""How many labels are wrong, told apart from the mistakes of a network."""

import numpy as np
import pytest

from train_pytorch_model.evaluation import label_noise
from train_pytorch_model.evaluation.label_noise import fit_label_noise

NUM_CLASSES = 5


def labels_and_logits(
    seed: int, strength: float, flipped: float, count: int = 1500
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels (N,), which of them are wrong (N,), and logits of a network that is calibrated."""
    random = np.random.default_rng(seed)
    logits = strength * random.standard_normal((count, NUM_CLASSES))
    true = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    is_wrong = random.random(count) < flipped
    other = (true + random.integers(1, NUM_CLASSES, count)) % NUM_CLASSES
    return np.where(is_wrong, other, true), is_wrong, logits


@pytest.mark.parametrize("strength", [0.5, 1, 2, 4, 12], ids=lambda strength: f"x{strength}")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hardly_any_clean_label_is_suspected_at_any_accuracy(seed: int, strength: float) -> None:
    labels, _, logits = labels_and_logits(seed, strength, 0)
    # Its temperature is wrong, as of most networks.
    noise = fit_label_noise(2 * logits, labels)
    assert (noise.wrong_probabilities(2 * logits, labels) >= 0.5).mean() <= 0.01


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_wrong_labels_are_found_and_their_number_is_told(seed: int) -> None:
    labels, is_wrong, logits = labels_and_logits(seed, 8, 0.1)
    noise = fit_label_noise(2 * logits, labels)
    wrong = noise.wrong_probabilities(2 * logits, labels)
    is_listed = wrong >= 0.5
    assert is_wrong[is_listed].mean() > 0.8
    assert is_listed[is_wrong].mean() > 0.5
    assert wrong.sum() == pytest.approx(is_wrong.sum(), rel=0.25)
    assert wrong[is_listed].sum() == pytest.approx(is_wrong[is_listed].sum(), rel=0.15)
    assert noise.inverse_temperature == pytest.approx(0.5, rel=0.15)


def test_a_network_that_guesses_suspects_nothing() -> None:
    labels, _, _ = labels_and_logits(1, 1, 0.1)
    logits = np.random.default_rng(2).standard_normal((len(labels), NUM_CLASSES))
    noise = fit_label_noise(logits, labels)
    assert not (noise.wrong_probabilities(logits, labels) >= 0.5).any()


def test_few_images_say_nothing_about_their_labels() -> None:
    labels, _, logits = labels_and_logits(1, 8, 0.3, count=19)
    assert fit_label_noise(logits, labels).fraction == 0


def test_of_many_images_a_sample_says_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, _, logits = labels_and_logits(1, 8, 0.1)
    whole = fit_label_noise(logits, labels)
    monkeypatch.setattr(label_noise, "MAX_FITTED", 3000)
    assert fit_label_noise(logits, labels).fraction == pytest.approx(whole.fraction, abs=0.03)


def test_the_gradient_is_that_of_the_loss() -> None:
    labels, _, logits = labels_and_logits(1, 3, 0.1, count=50)
    values = np.array([0.2, -1.5])
    _, gradient = label_noise._loss_and_gradient(values, logits, labels)
    for index in range(2):
        step = np.zeros(2)
        step[index] = 1e-6
        after, _ = label_noise._loss_and_gradient(values + step, logits, labels)
        before, _ = label_noise._loss_and_gradient(values - step, logits, labels)
        assert gradient[index] == pytest.approx((after - before) / 2e-6, rel=1e-4)
