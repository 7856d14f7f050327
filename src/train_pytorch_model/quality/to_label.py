"""The images of a data set that are worth labelling next."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import write_csv

TO_LABEL = "to_label.csv"


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
