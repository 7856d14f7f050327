"""Whether images are like those of a model's validation.

Each feature of the images is compared with a histogram by two tests: of the ranks (Mann and Whitney
1947), which finds that values are higher or lower, and of the distributions (Smirnov 1939). Where
only some of the images are worse, energies and confidences show it better in a test of Savage's
scores (1956), which weighs the ranks by how unlike the validation images they are; and a few images
that are unlike all others in Fisher's exact test of how many are beyond nearly all of them. The
predicted categories are compared by the chi-squared test. No test depends on units, or on how
values are distributed; Holm's correction (1979) keeps the probability that any of them is a false
alarm at `FALSE_ALARMS`. As the tests agree with each other mostly, it is lower by far.
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
from train_pytorch_model.quality.estimated_accuracy import estimate_accuracy

FALSE_ALARMS = 0.005  # of all checks of images that are like the validation images, at most
MIN_IMAGES = 20  # of fewer, tests say nothing
NUM_BINS = 20
MIN_EXPECTED = 5.0  # images of a category, for the chi-squared test: rarer ones are put together
UNLIKE = {ENERGY: 1, CONFIDENCE: -1}  # the sign that makes high values those of unlike images
TAILS = (0.02, 0.98)  # further quantiles, between which bins end
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
    is_measured: bool  # whether it is known how confidences are too high where images have changed

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
        categories=_categories(counts),
        features={name: _histogram(values) for name, values in features.items()},
    )


def _histogram(values: np.ndarray) -> Histogram:
    """Return about as many values in each bin; values that are common have a bin of their own."""
    values = values[np.isfinite(values)]
    if not len(values):
        return Histogram([], [0])
    values = values[evenly_spaced(len(values), MAX_COUNTED)]
    levels = np.sort([*np.linspace(0, 1, NUM_BINS + 1), *TAILS])
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
    estimate = estimate_accuracy(histograms, confidences, features.get(ENERGY, np.empty(0)))
    return Drift(
        images=len(confidences),
        changes=_changes(histograms, features, predicted) if is_enough else (),
        accuracy=estimate.accuracy,
        accuracy_interval=estimate.interval,
        accuracy_before=histograms.accuracy,
        images_before=histograms.images,
        is_enough=is_enough,
        is_measured=histograms.falls is not None,
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
    if name in UNLIKE:
        sign = UNLIKE[name]
        p_values["unlike"] = _test_unlike(sign * now, sign * before)
        p_values["tail"] = _test_tail(sign * now, sign * before)
    return p_values


def _test_unlike(now: np.ndarray, before: np.ndarray) -> float:
    """Return the p-value of the test that some of the values now are among the highest."""
    from scipy import stats

    values = np.concatenate([now, before])
    levels = stats.rankdata(values) / (len(values) + 1)  # equal values have the same
    scores = -np.log(1 - levels)
    num_now = len(now)
    variance = (
        scores.var(ddof=1) * len(before) / len(values) / num_now
    )  # drawn without putting back
    deviations = (scores[:num_now].mean() - scores.mean()) / np.sqrt(variance)
    return float(stats.norm.sf(deviations))


def _test_tail(now: np.ndarray, before: np.ndarray) -> float:
    """Return the p-value of the test that more values now are above nearly all values before."""
    from scipy import stats

    limit = np.quantile(before, max(TAILS), method="higher")
    table = [[int((values > limit).sum()), len(values)] for values in (now, before)]
    for row in table:
        row[1] -= row[0]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


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
