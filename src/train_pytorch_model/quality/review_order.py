"""Which images most need a decision of a person, the most useful decision first.

Categories that are more probably wrong than right, and images that look alike but have different
categories, come first, by how probable it is that the category is wrong. Then come images without a
category of which to label next, then the labels that the model finds least probable, and last
images unlike all that the model was trained on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.quality.ranking import MIN_PROBABILITY, most_wrong_first, probably_wrong

SUSPECT = "suspect"
TWIN = "twin"
UNLABELLED = "unlabelled"
UNLIKE = "unlike"
DOUBTFUL = "doubtful"
MAX_UNLIKE = 50
MAX_REVIEWED = 500  # images at once
NO_CATEGORY = -1


@dataclass(frozen=True)
class Judged:
    """What is known about N images."""

    class_indices: np.ndarray  # (N,), int64; `NO_CATEGORY` for an image without
    proposed: np.ndarray  # (N,), int64: the most probable category besides its own
    wrong: np.ndarray  # (N,), float64: how probable it is that its category is wrong
    # (N,), float64: how probable its category is to the model; 1 without a category.
    label_probabilities: np.ndarray
    is_doubted: np.ndarray  # (N,), bool: whether the model prefers what is proposed
    energies: np.ndarray  # (N,), float64: how unlike the training images
    max_energy: float  # above, an image is unlike them
    contradictions: np.ndarray  # (P, 2), int64: images that look alike, with different categories
    to_label: Sequence[int]  # images without a category, the most useful first
    is_open: np.ndarray  # (N,), bool: whether it has not been decided on before


@dataclass(frozen=True)
class Ranked:
    """An image that needs a decision."""

    index: int
    kind: str
    proposed: int  # a category, or `NO_CATEGORY`
    wrong: float = 0.0
    twin: int = -1  # the index of the image that it looks like; -1 if that is not the reason


def rank_images(judged: Judged, size: int) -> list[Ranked]:
    """Return all images that need a decision, the most useful one first.

    On a page of so many, images to label next leave half of the room to labels that are in doubt.
    """
    first = list(_probably_wrong(judged))
    to_label = [Ranked(index, UNLABELLED, int(judged.proposed[index])) for index in judged.to_label]
    doubtful = list(_doubtful(judged))
    room = max(size - len({one.index for one in first}), 0)
    num_before = room // 2 if doubtful else room
    last = [*doubtful, *_unlike(judged)]
    ranked: dict[int, Ranked] = {}
    for one in (*first, *to_label[:num_before], *last, *to_label[num_before:]):
        if judged.is_open[one.index]:
            ranked.setdefault(one.index, one)
    return list(ranked.values())


def _probably_wrong(judged: Judged) -> Iterator[Ranked]:
    """Yield suspects and contradicting pairs, the most probably wrong first."""
    found = [
        Ranked(index, SUSPECT, int(judged.proposed[index]), float(judged.wrong[index]))
        for index in probably_wrong(judged.wrong).tolist()
    ]
    found += _contradicting(judged)
    wrong = np.array([one.wrong for one in found])
    indices = np.array([one.index for one in found])
    for position in most_wrong_first(wrong, indices).tolist():
        yield found[position]


def _contradicting(judged: Judged) -> Iterator[Ranked]:
    """Yield both images of each pair: at least one of them is wrong."""
    for pair in judged.contradictions.tolist():
        for index, twin in (pair, pair[::-1]):
            own = float(judged.label_probabilities[index])
            other = float(judged.label_probabilities[twin])
            # Of two, the less probable one is wrong with at least a half.
            wrong = max(MIN_PROBABILITY + (other - own) / 2, float(judged.wrong[index]))
            is_wrong = (own, index) < (other, twin)
            proposed = judged.class_indices[twin if is_wrong else index]
            yield Ranked(index, TWIN, int(proposed), wrong, twin)


def _unlike(judged: Judged) -> Iterator[Ranked]:
    strange = np.flatnonzero(judged.energies > judged.max_energy)
    order = strange[np.argsort(-judged.energies[strange], kind="stable")]
    for index in order[:MAX_UNLIKE].tolist():
        yield Ranked(index, UNLIKE, int(judged.class_indices[index]))


def _doubtful(judged: Judged) -> Iterator[Ranked]:
    doubted = np.flatnonzero(judged.is_doubted)
    order = doubted[np.argsort(judged.label_probabilities[doubted], kind="stable")]
    for index in order.tolist():
        wrong = float(judged.wrong[index])
        yield Ranked(index, DOUBTFUL, int(judged.proposed[index]), wrong)
