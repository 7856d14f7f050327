"""Whether images are like those of a model's validation, and how accurate it is without labels.

Each feature of the images is compared with a histogram by two tests: of the ranks (Mann and Whitney
1947), which finds that values are higher or lower, and of the distributions (Smirnov 1939). A few
images that are unlike all others show in neither, but in Fisher's exact test of how many are beyond
nearly all validation images. The predicted categories are compared by the chi-squared test. No test
depends on units, or on how values are distributed; Holm's correction (1979) keeps the probability
that any of them is a false alarm at `FALSE_ALARMS`.

The accuracy is estimated as the fraction of images whose confidence is at least that which as many
validation images had as were right (Garg et al. 2022, Leveraging Unlabeled Data to Predict
Out-of-Distribution Performance). If hardly any was wrong, that confidence is a matter of chance:
the accuracy is then estimated to have changed as the mean confidence has (Guillory et al. 2021).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.histograms import (
    MAX_CATEGORIES,
    MAX_COUNTED,
    Histogram,
    Histograms,
)
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.seen_images import CONFIDENCE
from train_pytorch_model.image_classifier.predictions import ENERGY

FALSE_ALARMS = 0.001  # of all checks of images that are like the validation images, at most
MIN_IMAGES = 20  # of fewer, tests say nothing
NUM_BINS = 20
MIN_MISTAKES = 12  # in the validation, for the confidence that tells right from wrong
MIN_EXPECTED = 5.0  # images of a category, for the chi-squared test: rarer ones are put together
DEVIATIONS = 1.96  # on either side of an estimate: 95 %
TAILS = {ENERGY: 0.98, CONFIDENCE: 0.02}  # quantiles beyond which images are unlike all others
_NUDGE = 1e-4  # relative: just above a value that many images share
CATEGORIES = "categories"


@dataclass(frozen=True)
class Change:
    """A feature in which the images differ from the validation images."""

    feature: str
    before: float  # the median of the validation images, or NaN for the categories
    now: float
    p_value: float  # corrected for the number of tests


@dataclass(frozen=True)
class Drift:
    """What a comparison of images with the validation images came to."""

    images: int
    changes: Sequence[Change]  # the least probable by chance first
    accuracy: float  # estimated, from 0 to 1
    accuracy_interval: tuple[float, float]
    accuracy_before: float  # of the validation images, …
    images_before: int  # … which are so many
    is_enough: bool  # whether there are enough images to say anything

    @property
    def is_like(self) -> bool:
        """Return whether nothing has changed."""
        return not self.changes


def histograms_of(
    features: Mapping[str, np.ndarray],
    confidences: np.ndarray,
    predicted: np.ndarray,
    is_hit: np.ndarray,
    num_categories: int,
) -> Histograms:
    """Return what is kept of N > 0 validation images.

    Features are (M,), float64, of all or a sample of them, NaN if unknown; the confidences are one.
    """
    accuracy = float(is_hit.mean())
    counts = np.bincount(predicted, minlength=num_categories)
    return Histograms(
        images=len(confidences),
        accuracy=accuracy,
        confidence=min(1.0, float(confidences.mean())),
        threshold=_threshold(confidences, int(is_hit.sum())),
        categories=_categories(counts),
        features={name: _histogram(values) for name, values in features.items()},
    )


def _threshold(confidences: np.ndarray, num_right: int) -> float | None:
    """Return the confidence that as many images have at least as are right; None if not known."""
    ordered = np.sort(confidences)
    num_wrong = len(ordered) - num_right
    if min(num_wrong, num_right) < MIN_MISTAKES:
        return None
    return float((ordered[num_wrong - 1] + ordered[num_wrong]) / 2)


def _histogram(values: np.ndarray) -> Histogram:
    """Return about as many values in each bin; values that are common have a bin of their own."""
    values = values[np.isfinite(values)]
    if not len(values):
        return Histogram([], [0])
    values = values[evenly_spaced(len(values), MAX_COUNTED)]
    levels = np.sort([*np.linspace(0, 1, NUM_BINS + 1), *TAILS.values()])
    quantiles = np.quantile(values, levels, method="lower")
    edges, counts = np.unique(quantiles, return_counts=True)
    common = edges[counts > 1]
    edges = np.concatenate([edges, common + _NUDGE * np.maximum(np.abs(common), 1e-3)])
    edges = np.unique([float(f"{edge:.6g}") for edge in edges])
    return Histogram(edges.tolist(), _counts(values, edges).tolist())


def _counts(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    codes = np.searchsorted(edges, values, side="right")
    counts: np.ndarray = np.bincount(codes, minlength=len(edges) + 1)
    return counts


def _categories(counts: np.ndarray) -> list[int]:
    """Return the counts of the first categories, and in a last number the sum of any others."""
    if len(counts) <= MAX_CATEGORIES:
        return [int(count) for count in counts]
    return [*map(int, counts[:MAX_CATEGORIES]), int(counts[MAX_CATEGORIES:].sum())]


def compare(
    histograms: Histograms,
    features: Mapping[str, np.ndarray],
    confidences: np.ndarray,
    predicted: np.ndarray,
) -> Drift:
    """Compare N images with the validation images.

    A feature is (N,), float64, NaN where it is unknown; predicted are class indices, -1 for none.
    """
    is_enough = min(len(confidences), histograms.images) >= MIN_IMAGES
    accuracy = _estimate(histograms, confidences)
    return Drift(
        images=len(confidences),
        changes=_changes(histograms, features, predicted) if is_enough else (),
        accuracy=accuracy,
        accuracy_interval=_interval(accuracy, len(confidences), histograms),
        accuracy_before=histograms.accuracy,
        images_before=histograms.images,
        is_enough=is_enough,
    )


def _changes(
    histograms: Histograms, features: Mapping[str, np.ndarray], predicted: np.ndarray
) -> list[Change]:
    """Return the features that have changed, each with its least probable test."""
    p_values: dict[tuple[str, str], float] = {}
    medians = {CATEGORIES: (np.nan, np.nan)}
    for name, histogram in histograms.features.items():
        values = features[name][np.isfinite(features[name])]
        if min(len(values), sum(histogram.counts)) >= MIN_IMAGES:
            p_values |= {(name, test): p for test, p in _tests(name, histogram, values).items()}
            medians[name] = (_median(histogram), float(np.median(values)))
    known = predicted[predicted >= 0]
    if len(known):
        p_values[CATEGORIES, "shares"] = _test_categories(histograms.categories, known)

    changes: dict[str, Change] = {}
    for (feature, _), p_value in _by_holm(p_values):
        if feature not in changes:
            changes[feature] = Change(feature, *medians[feature], p_value)
    return list(changes.values())


def _tests(name: str, histogram: Histogram, values: np.ndarray) -> dict[str, float]:
    """Return the p-values of the tests of a feature, by the names of the tests."""
    from scipy import stats  # here, because it takes a second

    counts = np.array(histogram.counts)
    before = np.repeat(np.arange(len(counts)), counts)
    now = np.searchsorted(np.array(histogram.edges), values, side="right")
    if len(np.unique(np.concatenate([before, now]))) == 1:
        return {}
    p_values = {
        "ranks": float(stats.mannwhitneyu(now, before, method="asymptotic").pvalue),
        "distribution": float(stats.ks_2samp(now, before, method="asymp").pvalue),
    }
    if name in TAILS:
        # The codes of the bins beyond the quantile: the last ones, or the first.
        sign = 1 if TAILS[name] > 0.5 else -1
        limit = np.quantile(sign * before, 1 - min(TAILS[name], 1 - TAILS[name]), method="higher")
        table = [[int((sign * codes > limit).sum()) for codes in (now, before)]]
        table.append([len(now) - table[0][0], len(before) - table[0][1]])
        p_values["tail"] = float(stats.fisher_exact(table, alternative="greater").pvalue)
    return p_values


def _test_categories(counts: Sequence[int], predicted: np.ndarray) -> float:
    """Return the p-value of the chi-squared test of the predicted categories."""
    from scipy import stats

    before = np.array(counts, np.float64)
    now = np.bincount(np.minimum(predicted, len(counts) - 1), minlength=len(counts))
    table = np.stack([before, now])  # (2, K)
    shares = table.sum(axis=1, keepdims=True) / table.sum()
    expected = (table.sum(axis=0) * shares).min(axis=0)  # of the smaller of the two
    is_rare = expected < MIN_EXPECTED
    merged = np.column_stack([table[:, ~is_rare], table[:, is_rare].sum(axis=1)])
    merged = merged[:, merged.sum(axis=0) > 0]
    if merged.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(merged).pvalue)


def _by_holm(
    p_values: Mapping[tuple[str, str], float],
) -> list[tuple[tuple[str, str], float]]:
    """Return the tests that alarm, with corrected p-values, the smallest first."""
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    alarms = []
    for rank, (test, p_value) in enumerate(ordered):
        corrected = min(1.0, p_value * (len(ordered) - rank))
        if corrected > FALSE_ALARMS:
            break
        alarms.append((test, corrected))
    return alarms


def _median(histogram: Histogram) -> float:
    """Return the edge next to which the middle of the values is."""
    total = np.cumsum(histogram.counts)
    index = int(np.searchsorted(total, total[-1] / 2))
    edges = histogram.edges
    return edges[min(max(index - 1, 0), len(edges) - 1)] if edges else np.nan


def _estimate(histograms: Histograms, confidences: np.ndarray) -> float:
    """Return the estimated accuracy, from 0 to 1; NaN without images."""
    if not len(confidences):
        return np.nan
    if histograms.threshold is not None:
        return float((confidences >= histograms.threshold).mean())
    estimate = histograms.accuracy + confidences.mean() - histograms.confidence
    return float(np.clip(estimate, 0, 1))


def _interval(accuracy: float, images: int, histograms: Histograms) -> tuple[float, float]:
    """Return where the accuracy is in 95 % of such estimates, from the counts of both images."""
    if not images:
        return (np.nan, np.nan)

    def variance(fraction: float, count: int) -> float:
        smoothed = (fraction * count + 2) / (count + 4)  # Agresti and Coull 1998
        return smoothed * (1 - smoothed) / (count + 4)

    both = variance(accuracy, images) + variance(histograms.accuracy, histograms.images)
    margin = DEVIATIONS * np.sqrt(both)
    return max(0.0, float(accuracy - margin)), min(1.0, float(accuracy + margin))
