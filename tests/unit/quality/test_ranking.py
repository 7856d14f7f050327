"""The order in which images are put before a person."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.image_directories import open_three
from tests.unit.quality.test_review_order import JUDGED

from train_pytorch_model.quality.ranking import (
    most_wrong_first,
    probably_wrong,
    uncertain_and_unlike,
)
from train_pytorch_model.quality.review_order import SUSPECT, rank_images
from train_pytorch_model.quality.suspects import suspect_rows, suspects_by_prediction


def test_the_most_probably_wrong_come_first_and_of_equals_those_in_front() -> None:
    wrong = np.array([0.5, 0.9, 0.5, 0.49, 0.9])
    assert probably_wrong(wrong).tolist() == [1, 4, 0, 2]
    assert probably_wrong(wrong, 0.8).tolist() == [1, 4]
    assert most_wrong_first(wrong, np.array([4, 3, 2, 1, 0])).tolist() == [4, 1, 2, 0, 3]
    assert most_wrong_first(wrong[:0], wrong[:0]).tolist() == []


def test_the_page_and_suspects_csv_have_the_same_order(tmp_path: Path) -> None:
    images = open_three(tmp_path)
    targets = images.class_indices.astype(np.int64)
    logits = np.array([[0.1, 0.9], [0.9, 0.2], [0.3, 0.8]])
    for wrong in ([0.9, 0.6, 0.9], [0.5, 0.7, 0.8], [0.6, 0.6, 0.6], [0.1, 0.2, 0.5]):
        suspects = suspects_by_prediction(targets, logits, np.array(wrong))
        judged = replace(
            JUDGED,
            wrong=np.array([*wrong, *[0] * 5]),
            is_doubted=np.zeros(8, bool),
            contradictions=np.empty((0, 2), np.int64),
        )
        ranked = [one.index for one in rank_images(judged, 9) if one.kind == SUSPECT]
        names = [images.file_names[index] for index in ranked]
        assert [row.file for row in suspect_rows([(images, suspects)])] == names


def test_what_is_uncertain_and_unlike_what_comes_before_is_labelled_first() -> None:
    random = np.random.default_rng(3)
    known = random.normal(size=(20, 8))  # a model is sure of them, and each is unlike all others
    edge = np.repeat(np.eye(8)[:2], 10, axis=0) + random.normal(size=(20, 8)) / 50
    features = np.concatenate([known, edge]).astype(np.float32)
    margins = np.concatenate([np.full(20, 0.97), np.linspace(0, 0.2, 20)])
    order = list(uncertain_and_unlike(margins, features))
    assert sorted(order) == list(range(40))
    assert order[0] == 20  # the most uncertain one
    assert order[1] in range(30, 40)  # of the other kind
    assert set(order[:2]) <= set(range(20, 40))  # none of those of which the model is sure
    copies = np.ones((5, 3), np.float32)
    assert list(uncertain_and_unlike(np.array([0.3, 0.1, 0.2, 0.0, 0.4]), copies)) == [
        3,
        1,
        2,
        0,
        4,
    ]
