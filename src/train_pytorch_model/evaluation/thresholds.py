"""The probability from which on a category is answered, where images have any number of them.

For each category it is where F1 is highest on the validation images. So that numbers about these
images are not flattered, each fifth of them is answered with the threshold of the others; and a
threshold that does not raise F1 that way, or is of few images, stays a half.
"""

import numpy as np

DEFAULT = 0.5
MIN_IMAGES = 5  # with a category, and without it
FOLDS = 5


def fit_thresholds(targets: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return thresholds (C,), float64, and which categories are answered of each image, (N, C).

    Targets are (N, C), bool. The answers of an image are those of thresholds that were fitted on
    others.
    """
    answered = probabilities >= DEFAULT
    thresholds = np.full(targets.shape[1], DEFAULT)
    counts = targets.sum(axis=0)
    has_enough = (counts >= MIN_IMAGES) & (len(targets) - counts >= MIN_IMAGES)
    folds = np.arange(len(targets)) % FOLDS
    for index in np.flatnonzero(has_enough):
        is_true = targets[:, index]
        scores = probabilities[:, index]
        out_of_fold = np.empty(len(scores), dtype=bool)
        for fold in range(FOLDS):
            is_other = folds != fold
            threshold = best_threshold(is_true[is_other], scores[is_other])
            out_of_fold[~is_other] = scores[~is_other] >= threshold
        if f1_of(is_true, out_of_fold) > f1_of(is_true, answered[:, index]):
            thresholds[index] = best_threshold(is_true, scores)
            answered[:, index] = out_of_fold
    return thresholds, answered


def best_threshold(is_true: np.ndarray, scores: np.ndarray) -> float:
    """Return the threshold of the highest F1, in the middle between two scores.

    That is of N images, of which some may be true, (N,), bool, by their scores (N,).
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    hits = np.cumsum(is_true[order])
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + is_true.sum())
    below = np.append(ranked[1:], 0.0)
    f1[ranked == below] = -1.0  # equal scores are answered alike
    last = int(f1.argmax())
    return float((ranked[last] + below[last]) / 2)


def f1_of(is_true: np.ndarray, answered: np.ndarray) -> float:
    """Return the F1 of answers (N,), bool; 0 without any image that is true or answered."""
    hits = int((is_true & answered).sum())
    return 2 * hits / max(1, int(is_true.sum()) + int(answered.sum()))
