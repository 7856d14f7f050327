from typing import Any

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from train_pytorch_model.quality.folds import stratified_folds
from train_pytorch_model.quality.solved_classifier import STRENGTHS, losses_of, out_of_fold, solve


def clouds(count: int, width: int = 6, distance: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Return features (N, width), float32, of three overlapping clouds, and their targets (N,)."""
    random = np.random.default_rng(0)
    targets = np.arange(count) % 3
    centres = distance * np.eye(3, width)
    features = centres[targets] + random.normal(size=(count, width)) + 5
    return features.astype(np.float32), targets


def test_the_solution_is_that_of_scikit_learn() -> None:
    features, targets = clouds(300)
    strength = STRENGTHS[3]
    centred = features.astype(np.float64) - features.mean(axis=0)
    scaled = centred / np.sqrt(np.square(centred).sum(axis=1).mean())
    oracle = LogisticRegression(C=1 / (strength * len(targets)), tol=1e-8, max_iter=1000)
    expected = oracle.fit(scaled, targets).predict_proba(scaled)
    logits = solve(features, targets, 3, strength).logits(features)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert powers / powers.sum(axis=1, keepdims=True) == pytest.approx(expected, abs=0.005)


def test_neither_scale_nor_offset_of_features_matters() -> None:
    features, targets = clouds(120)
    plain = solve(features, targets, 3, STRENGTHS[4]).logits(features)
    moved = solve(features * 8 + 64, targets, 3, STRENGTHS[4]).logits(features * 8 + 64)
    assert moved == pytest.approx(plain, abs=1e-3)


def test_more_features_than_images_are_solved_as_well() -> None:
    features, targets = clouds(30, width=80, distance=6.0)
    solved = solve(features, targets, 3, STRENGTHS[4])
    assert solved.weight.shape == (3, 80)
    assert (solved.logits(features).argmax(axis=1) == targets).all()


def test_a_category_without_images_is_improbable() -> None:
    features, targets = clouds(60)
    solved = solve(features, targets, 4, STRENGTHS[2])
    assert (solved.logits(features).argmax(axis=1) < 3).all()


def test_out_of_fold_accuracy_of_noise_is_that_of_guessing() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(150, 200)).astype(np.float32)
    targets = random.integers(0, 3, 150)
    folds = stratified_folds(targets, np.arange(150), seed=1)
    predicted = out_of_fold(features, targets, folds, 3)
    assert (predicted.logits.argmax(axis=1) == targets).mean() < 0.45
    assert losses_of(predicted.logits, targets).mean() < 1.2  # the strongest penalty is chosen
    assert predicted.strength == STRENGTHS[0]


def test_twins_in_one_fold_do_not_raise_the_number() -> None:
    random = np.random.default_rng(0)
    features = np.repeat(random.normal(size=(60, 300)), 2, axis=0).astype(np.float32)
    targets = np.repeat(random.integers(0, 2, 60), 2)
    apart = out_of_fold(features, targets, np.arange(120) % 5, 2)
    assert (apart.logits.argmax(axis=1) == targets).mean() > 0.9
    folds = stratified_folds(targets, np.arange(120) // 2, seed=1)
    together = out_of_fold(features, targets, folds, 2)
    assert (together.logits.argmax(axis=1) == targets).mean() < 0.65


def test_the_same_bits_come_out_twice() -> None:
    features, targets = clouds(90)
    folds = stratified_folds(targets, np.arange(90), seed=1)
    first, again = (out_of_fold(features, targets, folds, 3) for _ in range(2))
    assert first.logits.tobytes() == again.logits.tobytes()


def test_losses_without_a_fold_leave_it_out() -> None:
    features, targets = clouds(90)
    folds = stratified_folds(targets, np.arange(90), seed=1)
    before = out_of_fold(features, targets, folds, 3).losses_without
    changed = np.where(folds == 2, (targets + 1) % 3, targets)
    after = out_of_fold(features, changed, folds, 3).losses_without
    assert after[2] == pytest.approx(before[2], rel=1e-6)
    assert abs(after[0] - before[0]) > 0.05


def test_products_take_one_thread_whatever_else_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: set[int] = set()
    minimize = scipy.optimize.minimize

    def counting(*arguments: Any, **options: Any) -> Any:
        counts.update(library["num_threads"] for library in blas_libraries())
        return minimize(*arguments, **options)

    monkeypatch.setattr(scipy.optimize, "minimize", counting)
    features, targets = clouds(30)
    with threadpool_limits(2, user_api="blas"):
        out_of_fold(features, targets, np.arange(30) % 5, 3)
        assert {library["num_threads"] for library in blas_libraries()} == {2}
    assert counts == {1}


def blas_libraries() -> list[dict[str, Any]]:
    return [library for library in threadpool_info() if library["user_api"] == "blas"]


def test_one_fold_is_refused() -> None:
    features, targets = clouds(9)
    with pytest.raises(ValueError, match="in 1 fold only"):
        out_of_fold(features, targets, np.zeros(9, np.int64), 3)
