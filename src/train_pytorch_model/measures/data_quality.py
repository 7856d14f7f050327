"""Images that deserve a look: with a category that is probably wrong, that look alike, to be
labelled next.

`suspects.csv`, in the trained model directory, lists images whose category is probably wrong, the
most suspicious first. Both data sets are judged by what a run knows anyway: the training images by
their margins while they were learned, the validation images by predictions of a model that was not
trained on them.

`twins.csv` lists images that look alike, so that validation measures what was memorized. What
contradicts itself comes first, then pairs of a training and a validation image, then those within
one data set:

    port,file_name,category               an image
    other_port,other_file_name,other_category   another that looks like it; of several copies, each is listed
                                          with the first one
    kind                                  identical (byte by byte), similar or mirrored
    distance                              bits in which the perceptual hashes differ, of 128
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import write_csv
from train_pytorch_model.inputs.twins import Pairs, find_pairs
from train_pytorch_model.words.errors import counted

SUSPECTS = "suspects.csv"
TO_LABEL = "to_label.csv"
TWINS = "twins.csv"
MAX_MARGIN = 0.35  # of a suspect: on clean digits, one image in a hundred is below
MAX_SHARE = 0.1  # of the images: a network that has learned little doubts half of them
ROUNDING = 1e-6


@dataclass(frozen=True)
class Suspects:
    """K images of a data set, by increasing score."""

    indices: np.ndarray  # (K,), int64
    proposed: np.ndarray  # (K,), int64: the class indices of more probable categories
    scores: np.ndarray  # (K,), float64: how probable the given category is, from 0 to 1
    num_images: int  # of the whole data set


@dataclass(frozen=True)
class Suspect:
    """A row of suspects.csv."""

    file: str
    given: str
    proposed: str
    score: float
    dataset: str
    original: str  # the file's name before it was copied; empty if unknown


@dataclass(frozen=True)
class TwinRow:
    """A row of twins.csv."""

    port: str
    file_name: str
    category: str
    other_port: str
    other_file_name: str
    other_category: str
    kind: str
    distance: int


@dataclass(frozen=True)
class Familiar:
    """Images of a data set that look like an image on which the model was trained."""

    images: int
    total: int  # of the whole data set
    accuracy_without: float | None  # the accuracy on the others; None without any

    @classmethod
    def of(cls, is_familiar: np.ndarray, is_hit: np.ndarray) -> "Familiar":
        """From `is_familiar` (N,), bool, and whether the predictions for the others are right,
        (M,), bool.
        """
        return cls(
            int(is_familiar.sum()), len(is_familiar), float(is_hit.mean()) if len(is_hit) else None
        )

    def describe(self, accuracy: float | None = None) -> str:
        """What that means for evaluated or, with their accuracy, validation images; empty without
        any.
        """
        if not self.images:
            return ""
        kind, means, it, more = (
            "image",
            "an image on which the model was trained:",
            "the accuracy",
            "",
        )
        if accuracy is not None:
            kind = "validation image"
            means = f"a training image: the accuracy of {accuracy:.1%} includes them, and"
            it, more = "it", f" {TWINS} lists the pairs; `split` keeps them together."
        rest = "there are no others"
        if self.accuracy_without is not None:
            rest = f"on the others {it} is {self.accuracy_without:.1%}"
        look, images = (
            "looks" if self.images == 1 else "look",
            counted(self.total, kind, f"{kind}s"),
        )
        return f"{self.images:,} of {images} {look} like {means} {rest}.{more}"


def suspects_by_margin(margins: np.ndarray, others: np.ndarray) -> Suspects:
    """Suspects by mean margins (N,) of the given categories over the best others (N,), 0 to 1; NaN:
    none.
    """
    order = np.argsort(margins, kind="stable")  # NaN last
    chosen = order[margins[order] < MAX_MARGIN][: int(MAX_SHARE * len(order))]
    return Suspects(chosen, others[chosen], margins[chosen], len(margins))


def suspects_by_prediction(targets: np.ndarray, probabilities: np.ndarray) -> Suspects:
    """Suspects among N images with targets (N,), by predictions (N, C) that did not learn from
    them.

    Confident learning (Northcutt et al. 2021, Confident Learning: Estimating Uncertainty in Dataset
    Labels, equation 1): a category is confident if it is at least as probable as on average for the
    images that are given it. An image is suspect if its most probable confident category is not its
    own, nor is the most probable one.
    """
    rows, num_classes = np.arange(len(targets)), probabilities.shape[1]
    of_target = probabilities[rows, targets]  # (N,)
    counts = np.bincount(targets, minlength=num_classes)
    thresholds = np.bincount(targets, of_target, num_classes) / np.maximum(counts, 1)  # (C,)
    is_confident = (probabilities >= thresholds - ROUNDING) & (counts > 0)  # (N, C)
    proposed = np.where(is_confident, probabilities, -1).argmax(axis=1)
    differs = (proposed != targets) & (probabilities.argmax(axis=1) != targets)
    suspects = np.flatnonzero(differs & is_confident.any(axis=1))
    chosen = suspects[np.argsort(of_target[suspects], kind="stable")]
    return Suspects(chosen, proposed[chosen], of_target[chosen], len(targets))


def suspect_rows(parts: Sequence[tuple[ImageDirectory, Suspects]]) -> list[Suspect]:
    """The rows of suspects.csv from all data sets, as far down in the order of its own as each is."""
    ranked = []
    for images, found in parts:
        columns = (found.indices.tolist(), found.proposed.tolist(), found.scores.tolist())
        originals = images.original_names(found.indices)
        for place, (index, proposed, score, original) in enumerate(
            zip(*columns, originals, strict=True), 1
        ):
            given = images.categories[images.class_indices[index]]
            better, file = images.categories[proposed], images.file_names[index]
            suspect = Suspect(file, given, better, round(score, 4), images.port, original)
            ranked.append((place / found.num_images, suspect))
    return [suspect for _, suspect in sorted(ranked, key=lambda each: each[0])]


def compare_with_training(
    known: np.ndarray, hashes: np.ndarray, is_hit: np.ndarray
) -> Familiar | None:
    """Compare hashes (N, 16), uint8, of evaluated images with `known` (K, 16); None if K is 0."""
    if len(known) == 0:
        return None
    is_seen = _seen(
        find_pairs(np.concatenate([known, hashes]), len(known)), len(known), len(hashes)
    )
    return Familiar.of(is_seen, is_hit[~is_seen])


def find_twins(
    training: ImageDirectory, validation: ImageDirectory, identical: np.ndarray, hashes: np.ndarray
) -> tuple[list[TwinRow], np.ndarray]:
    """Return the twins among the images of both; and which validation images look like a training
    image.

    The latter is (V,), bool. Validation images are numbered on after the training images: in the
    `identical` pairs (P, 2) and in their perceptual `hashes` (N, 16), uint8.
    """
    similar = find_pairs(hashes)
    # Identical pairs have a distance of -1, and replace the same ones among the similar.
    images = np.concatenate([identical, similar.images])
    distances = np.concatenate([np.full(len(identical), -1), similar.distances])
    is_mirrored = np.concatenate([np.zeros(len(identical), bool), similar.is_mirrored])
    _, firsts = np.unique(images, axis=0, return_index=True)
    found = Pairs(images[firsts], distances[firsts], is_mirrored[firsts])

    directories, first_validation = (training, validation), len(training)
    categories = np.concatenate([training.class_indices, validation.class_indices])
    contradicts = categories[found.images[:, 0]] != categories[found.images[:, 1]]
    is_shared = (found.images[:, 0] < first_validation) & (found.images[:, 1] >= first_validation)
    order = np.lexsort([*found.images.T[::-1], found.distances, ~is_shared, ~contradicts])

    def describe(number: int) -> tuple[str, str, str]:
        directory = directories[number >= first_validation]
        index = number - first_validation * (number >= first_validation)
        category = directory.categories[directory.class_indices[index]]
        return directory.port, directory.file_names[index], category

    kinds = np.where(
        found.is_mirrored, "mirrored", np.where(found.distances < 0, "identical", "similar")
    )
    rows = [
        TwinRow(
            *describe(one), *describe(other), str(kinds[place]), max(0, int(found.distances[place]))
        )
        for place, (one, other) in zip(order.tolist(), found.images[order].tolist(), strict=True)
    ]
    return rows, _seen(found, len(training), len(validation))


def _seen(found: Pairs, num_training: int, num_validation: int) -> np.ndarray:
    """(V,), bool: the validation images that are paired with a training image, or copies of such a
    one.
    """
    one, other = found.images.T
    is_seen = np.zeros(num_training + num_validation, bool)
    is_seen[other[(one < num_training) & (other >= num_training)]] = True
    is_copy = found.distances <= 0  # which are paired with the first of their kind only
    is_seen[other[is_copy]] |= is_seen[one[is_copy]]
    return is_seen[num_training:]


@dataclass(frozen=True)
class Candidate:
    """An image that may be labelled."""

    index: int  # in its dataset
    top: tuple[int, int]  # the class indices of the most and the second most probable category
    probabilities: tuple[float, float]
    features: np.ndarray  # (F,), float32


class MostUncertain:
    """The images with the smallest margins among any number of them, in memory for `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[float, int, Candidate]] = []  # the largest margin first

    def add(self, indices: np.ndarray, probabilities: np.ndarray, features: np.ndarray) -> None:
        """Add images by their indices (B,): their (B, at least two categories), and (B, F),
        float32.
        """
        tops = np.argsort(-probabilities, axis=1, kind="stable")[:, :2]
        best = np.take_along_axis(probabilities, tops, axis=1).tolist()
        for row, index in enumerate(indices.tolist()):
            rank = (best[row][1] - best[row][0], -index)
            if len(self._heap) == self._size:
                if rank < self._heap[0][:2]:
                    continue
                heapq.heappop(self._heap)
            candidate = Candidate(
                index, tuple(tops[row].tolist()), tuple(best[row]), features[row].copy()
            )
            heapq.heappush(self._heap, (*rank, candidate))

    def by_margin(self) -> list[Candidate]:
        """The images, the most uncertain first."""
        return [
            candidate
            for *_, candidate in sorted(self._heap, reverse=True, key=lambda each: each[:2])
        ]

    def ranked(self) -> Iterator[Candidate]:
        """Yield the most uncertain image, then always the one least similar to all before it.

        That is farthest-point order by the angle between features (Sener and Savarese 2018, Active
        Learning for Convolutional Neural Networks: A Core-Set Approach): the first few have one of
        every kind.
        """
        left = self.by_margin()
        if not left:
            return
        features = np.stack([candidate.features for candidate in left])  # (K, F)
        features /= np.maximum(
            np.linalg.norm(features, axis=1, keepdims=True), np.finfo(np.float32).tiny
        )
        similarity = np.full(
            len(left), -1.0, dtype=np.float32
        )  # to the most similar one before; -1 to 1
        chosen = 0
        for _ in left:
            yield left[chosen]
            similarity = np.maximum(similarity, features @ features[chosen])
            similarity[chosen] = np.inf  # is done
            chosen = int(similarity.argmin())


def write_to_label(
    root: Path, ranked: Sequence[Candidate], images: ImageDirectory, categories: Sequence[str]
) -> None:
    """Write `to_label.csv`: the images to label, in that order."""
    originals = images.original_names(np.array([each.index for each in ranked], dtype=np.int64))
    rows = [
        [
            "file_name",
            "original",
            "margin",
            "Top 1",
            "Top 1 Probability",
            "Top 2",
            "Top 2 Probability",
        ]
    ]
    for each, original in zip(ranked, originals, strict=True):
        tops = zip(each.top, each.probabilities, strict=True)
        cells = [cell for index, value in tops for cell in (categories[index], f"{value:.6f}")]
        margin = each.probabilities[0] - each.probabilities[1]  # 0 if the model cannot decide
        rows.append([images.file_names[each.index], original, f"{margin:.6f}", *cells])
    write_csv(root / TO_LABEL, rows)
