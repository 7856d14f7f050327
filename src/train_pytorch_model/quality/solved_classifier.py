"""A linear classifier of features, solved: multinomial logistic regression with an L2 penalty.

Its strength is chosen by folds. An image is predicted by a classifier, and with a strength, that
have not seen its fold: so the predictions of all images say what the classifier is worth on others.

Features are centred, scaled to a mean squared norm of 1, and turned to their principal components,
of which the first `MAX_COMPONENTS` count: the penalty does not depend on the network's scale, and
the solution costs a fraction of the time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

# Of the weights' squared norm, against the mean loss; from the strongest, whose solution the next
# one starts from.
STRENGTHS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00003, 0.00001)
# All of 800 CIFAR-10 images, of 1,280 features, are as good at twice the time; 128 lose a point.
MAX_COMPONENTS = 512
MIN_VARIANCE = 1e-12  # of the largest one; below, a direction is rounding
TINY = 1e-300
MAX_STEPS = 200
TOLERANCE = 1e-4  # of the gradient's largest entry
MEMORY = 20  # of L-BFGS, in steps


@dataclass(frozen=True)
class Solved:
    """A linear classifier: logits are `features @ weight.T + bias`."""

    weight: np.ndarray  # (C, D), float64
    bias: np.ndarray  # (C,), float64

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Return the logits (N, C), float64, of features (N, D)."""
        of_features: np.ndarray = features.astype(np.float64) @ self.weight.T + self.bias
        return of_features


# The logits (S, N, C), at each strength, of classifiers that have not learned from some folds.
_Without = dict[tuple[int, ...], np.ndarray]


@dataclass(frozen=True)
class OutOfFold:
    """Predictions of N images by classifiers that have not learned from their folds."""

    logits: np.ndarray  # (N, C), float64
    strength: float  # the best one over all folds
    # (K,), float64: for each fold, the mean loss of the other folds' images, predicted without
    # them and it, with the strength that is best for that; NaN for an empty fold.
    losses_without: np.ndarray


class Components:
    """The principal components of features (N, D), to which others are turned as well."""

    def __init__(self, features: np.ndarray) -> None:
        self._mean = features.mean(axis=0, dtype=np.float64)  # (D,)
        centred = features - self._mean
        squared_norm = float(np.square(centred).sum(axis=1).mean())
        self._scale = 1 / np.sqrt(squared_norm) if squared_norm > 0 else 1.0
        self._directions = _directions(centred * self._scale)  # (D, R)

    def of(self, features: np.ndarray) -> np.ndarray:
        """Return (N, R), float64."""
        turned: np.ndarray = (features - self._mean) * self._scale @ self._directions
        return turned

    def undo(self, weight: np.ndarray, bias: np.ndarray) -> Solved:
        """Return a classifier of components, (R, C) and (C,), as one of features."""
        of_features = self._scale * (self._directions @ weight).T  # (C, D)
        return Solved(of_features, bias - of_features @ self._mean)


def _directions(centred: np.ndarray) -> np.ndarray:
    """Return (D, R): the directions of most variance of (N, D), each of norm 1."""
    count, width = centred.shape
    is_tall = count > width
    products = centred.T @ centred if is_tall else centred @ centred.T
    variances, vectors = np.linalg.eigh(products)  # ascending
    is_kept = variances > MIN_VARIANCE * max(variances[-1], TINY)
    kept = np.flatnonzero(is_kept)[::-1][:MAX_COMPONENTS]
    if is_tall:
        return vectors[:, kept]
    directions: np.ndarray = centred.T @ vectors[:, kept] / np.sqrt(variances[kept])
    return directions


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have matrix products of NumPy and SciPy take one thread.

    The threads of OpenBLAS wait for each other in each of thousands of small products: two of them
    take 40 times as long as one where they do not have two cores for themselves.
    """
    import scipy.optimize  # noqa: F401 only libraries that are loaded are limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


@_one_thread()
def solve(features: np.ndarray, targets: np.ndarray, num_classes: int, strength: float) -> Solved:
    """Return the classifier that suits features (N, D) with targets (N,) best at a strength.

    It starts from those of stronger ones, as in the folds.
    """
    components = Components(features)
    turned = components.of(features)
    path = _path(turned, targets, num_classes)
    solutions = islice(path, STRENGTHS.index(strength) + 1)
    *_, last = solutions
    return components.undo(*last)


@_one_thread()
def out_of_fold(
    features: np.ndarray, targets: np.ndarray, folds: np.ndarray, num_classes: int
) -> OutOfFold:
    """Predict N images with features (N, D) and targets (N,), each without its fold of (N,).

    The strength for a fold is chosen by the others, each predicted without both.
    """
    turned = Components(features).of(features)
    present = np.unique(folds).tolist()
    if len(present) < 2:
        raise ValueError(f"There are images in {len(present)} fold only.")

    def logits_without(*left_out: int) -> np.ndarray:
        """Return (S, N, C): logits at each strength, learned without these folds."""
        is_known = ~np.isin(folds, left_out)
        solutions = _path(turned[is_known], targets[is_known], num_classes)
        return np.stack([turned @ weight + bias for weight, bias in solutions])

    without: _Without = {(fold,): logits_without(fold) for fold in present}
    if len(present) > 2:  # of two, nothing is left without both
        without |= {pair: logits_without(*pair) for pair in combinations(present, 2)}

    logits = np.empty((len(targets), num_classes))
    losses_without = np.full(int(folds.max()) + 1, np.nan)
    for fold in present:
        losses = _losses_of_others(fold, present, without, folds, targets)  # (S,)
        best = int(losses.argmin())
        is_here = folds == fold
        logits[is_here] = without[(fold,)][best][is_here]
        losses_without[fold] = losses[best]
    of_all = _losses_out_of_fold(present, without, folds, targets)
    return OutOfFold(logits, STRENGTHS[int(of_all.argmin())], losses_without)


def losses_of(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the losses (…, N), in nats, of logits (…, N, C) with targets (N,)."""
    highest = logits.max(axis=-1, keepdims=True)
    shifted = logits - highest
    of_target = shifted[..., np.arange(len(targets)), targets]
    losses: np.ndarray = np.log(np.exp(shifted).sum(axis=-1)) - of_target
    return losses


def _losses_out_of_fold(
    present: Sequence[int], without: _Without, folds: np.ndarray, targets: np.ndarray
) -> np.ndarray:
    """Return (S,): the mean loss at each strength, each image predicted without its fold."""
    sums = np.zeros(len(STRENGTHS))
    for fold in present:
        is_here = folds == fold
        sums += losses_of(without[(fold,)][:, is_here], targets[is_here]).sum(axis=1)
    return sums / len(targets)


def _losses_of_others(
    fold: int, present: Sequence[int], without: _Without, folds: np.ndarray, targets: np.ndarray
) -> np.ndarray:
    """Return (S,): the mean loss of the other folds' images, each predicted without it and `fold`.

    Of two folds, the other one is predicted without itself only.
    """
    sums = np.zeros(len(STRENGTHS))
    for other in present:
        if other == fold:
            continue
        pair = (min(fold, other), max(fold, other))
        logits = without.get(pair, without[(other,)])
        is_other = folds == other
        sums += losses_of(logits[:, is_other], targets[is_other]).sum(axis=1)
    return sums / np.count_nonzero(folds != fold)


def _path(
    turned: np.ndarray, targets: np.ndarray, num_classes: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the solution for each strength, weights (R, C) and bias (C,), from the strongest."""
    # Here, because it takes a fifth of a second.
    from scipy.optimize import minimize

    count, width = turned.shape
    wanted = np.zeros((count, num_classes))
    wanted[np.arange(count), targets] = 1

    def loss_and_gradient(values: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
        weight = values[num_classes:].reshape(width, num_classes)
        logits = turned @ weight + values[:num_classes]
        logits -= logits.max(axis=1, keepdims=True)
        powers = np.exp(logits)
        totals = powers.sum(axis=1, keepdims=True)
        loss = (np.log(totals[:, 0]).sum() - (logits * wanted).sum()) / count
        errors = (powers / totals - wanted) / count
        of_weight = turned.T @ errors + strength * weight
        gradient = np.concatenate([errors.sum(axis=0), of_weight.ravel()])
        return loss + strength / 2 * np.square(weight).sum(), gradient

    values = np.zeros((1 + width) * num_classes)
    options = {"maxiter": MAX_STEPS, "gtol": TOLERANCE, "ftol": 0.0, "maxcor": MEMORY}
    for strength in STRENGTHS:
        solution = minimize(
            loss_and_gradient, values, (strength,), "L-BFGS-B", jac=True, options=options
        )
        values = solution.x
        yield values[num_classes:].reshape(width, num_classes), values[:num_classes]
