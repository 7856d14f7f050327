"""The images of a data set that are worth labelling next."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import write_csv

TO_LABEL = "to_label.csv"
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

    def by_margin(self) -> list[Candidate]:
        """Return the images, the most uncertain first."""
        ordered = sorted(self._heap, key=lambda entry: entry[:2], reverse=True)
        return [candidate for *_, candidate in ordered]

    def ranked(self) -> Iterator[Candidate]:
        """Yield the most uncertain image, then always the one least similar to all before it.

        That is farthest-point order by the angle between features (Sener and Savarese 2018, Active
        Learning for Convolutional Neural Networks: A Core-Set Approach): the first few have one of
        every kind.
        """
        candidates = self.by_margin()
        if not candidates:
            return
        features = np.stack([candidate.features for candidate in candidates])  # (K, F)
        norms = np.linalg.norm(features, axis=1, keepdims=True)
        features /= np.maximum(norms, np.finfo(np.float32).tiny)
        # (K,), -1 to 1: of each to the most similar one before
        similarity = np.full(len(candidates), -1.0, dtype=np.float32)
        chosen = 0
        for _ in candidates:
            yield candidates[chosen]
            similarity = np.maximum(similarity, features @ features[chosen])
            similarity[chosen] = np.inf  # is done
            chosen = int(similarity.argmin())


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
    write_csv(root / TO_LABEL, rows)
