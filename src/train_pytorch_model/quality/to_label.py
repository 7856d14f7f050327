"""The images of a data set that are worth labelling next."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.spreadsheet_cells import shown_rows
from train_pytorch_model.formats.writing import write_csv
from train_pytorch_model.quality.ranking import uncertain_and_unlike

TO_LABEL = "to_label.csv"
MIN_CANDIDATES = 1000  # so that the first of a table are the first of a review
CANDIDATES_PER_IMAGE = 2
COLUMNS = (
    "file_name",
    "original",
    "margin",
    "Top 1",
    "Top 1 Probability",
    "Top 2",
    "Top 2 Probability",
)


@dataclass(frozen=True)
class Candidate:
    """An image that may be labelled."""

    index: int  # in its dataset
    top: tuple[int, int]  # the class indices of the most and the second most probable category
    probabilities: tuple[float, float]
    features: np.ndarray  # (F,), float32


def num_candidates(size: int) -> int:
    """Return among how many of the most uncertain images `size` are chosen."""
    return max(MIN_CANDIDATES, CANDIDATES_PER_IMAGE * size) if size else 0


class MostUncertain:
    """The `size` images with the smallest margins among any number of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[float, int, Candidate]] = []  # the largest margin first

    def add(self, indices: np.ndarray, probabilities: np.ndarray, features: np.ndarray) -> None:
        """Add images by their indices (B,), with probabilities (B, C) and features (B, F), float32.

        There are at least two categories.
        """
        tops = np.argsort(-probabilities, axis=1, kind="stable")[:, :2]  # (B, 2)
        best = np.take_along_axis(probabilities, tops, axis=1).tolist()
        for row, index in enumerate(indices.tolist()):
            first, second = best[row]
            rank = (second - first, -index)
            if len(self._heap) == self._size:
                if rank < self._heap[0][:2]:
                    continue
                heapq.heappop(self._heap)
            top = tuple(tops[row].tolist())
            candidate = Candidate(index, top, (first, second), features[row].copy())
            heapq.heappush(self._heap, (*rank, candidate))

    def ranked(self) -> Iterator[Candidate]:
        """Yield the image that is most worth a label, then the next."""
        ordered = sorted(self._heap, key=lambda entry: entry[:2], reverse=True)
        candidates = [candidate for *_, candidate in ordered]
        if not candidates:
            return
        first, second = np.array([candidate.probabilities for candidate in candidates]).T
        features = np.stack([candidate.features for candidate in candidates])  # (K, F)
        for index in uncertain_and_unlike(first - second, features):
            yield candidates[index]


def write_to_label(
    root: Path, ranked: Sequence[Candidate], images: ImageDirectory, categories: Sequence[str]
) -> None:
    """Write `to_label.csv`: the images to label, in that order."""
    indices = np.array([candidate.index for candidate in ranked], dtype=np.int64)
    rows: list[Sequence[str]] = [COLUMNS]
    for candidate, original in zip(ranked, images.original_names(indices), strict=True):
        first, second = candidate.top
        first_probability, second_probability = candidate.probabilities
        margin = first_probability - second_probability  # 0 if the model cannot decide
        rows.append(
            [
                images.file_names[candidate.index],
                original,
                f"{margin:.6f}",
                categories[first],
                f"{first_probability:.6f}",
                categories[second],
                f"{second_probability:.6f}",
            ]
        )
    write_csv(root / TO_LABEL, shown_rows(rows))
