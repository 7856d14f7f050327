"""How probable it is that the categories of reviewed images are wrong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.reviews import predicted_of, review_inputs

from train_pytorch_model.formats.listing import UNLABELLED
from train_pytorch_model.quality.review_order import Judged
from train_pytorch_model.quality.suspects import SUSPECTS, Suspect, suspects_csv
from train_pytorch_model.reviewing.inputs import Predicted
from train_pytorch_model.reviewing.judgement import judge

CATEGORIES = ("bee", "wasp")
SURE = np.array([[0.9, 0.1], [0.1, 0.9]], np.float32)


def judged_in(root: Path, predicted: Predicted, class_indices: np.ndarray) -> Judged:
    inputs = review_inputs(root, predicted.names, class_indices, CATEGORIES)
    return judge(inputs, predicted, class_indices, np.ones(len(class_indices), bool))


def numbered(count: int) -> list[str]:
    return [f"{index}.png" for index in range(count)]


def test_wrong_labels_that_the_network_has_learned_are_doubted_by_what_it_sees(
    tmp_path: Path,
) -> None:
    class_indices = np.arange(80) % 2
    features = np.random.default_rng(2).normal(class_indices[:, None] * 4, size=(80, 8))
    wrong = [4, 5, 40, 60]
    class_indices[wrong] = 1 - class_indices[wrong]  # and the network is sure of them, too
    predicted = predicted_of(numbered(80), SURE[class_indices])
    seen = replace(predicted, features=features.astype(np.float32))
    judged = judged_in(tmp_path / "images", seen, class_indices)
    assert judged.is_doubted.nonzero()[0].tolist() == wrong
    assert (judged.label_probabilities < 0.5).nonzero()[0].tolist() == wrong
    assert judged.proposed[wrong].tolist() == [0, 1, 0, 0]


def test_what_training_has_suspected_counts_while_the_category_is_the_same(tmp_path: Path) -> None:
    class_indices = np.array([0, 1, UNLABELLED])
    names = numbered(3)
    inputs = review_inputs(tmp_path / "images", names, class_indices, CATEGORIES)
    rows = [Suspect(name, "bee", "wasp", 0.7, "Training dataset", "") for name in names]
    (inputs.scoring.model.root / SUSPECTS).write_text(suspects_csv(rows), encoding="utf-8")
    predicted = predicted_of(names, SURE[[0, 1, 0]])
    judged = judge(inputs, predicted, class_indices, np.ones(3, bool))
    assert judged.wrong.tolist() == [0.7, 0, 0]


def test_only_images_with_different_categories_contradict_each_other(tmp_path: Path) -> None:
    class_indices = np.array([UNLABELLED, 0, 0, 1, 1])
    predicted = predicted_of(numbered(5), SURE[[0, 0, 0, 1, 1]])
    alike = replace(predicted, hashes=predicted.hashes[[0, 0, 0, 0, 1]])
    judged = judged_in(tmp_path / "images", alike, class_indices)
    assert judged.contradictions.tolist() == [[1, 3]]


def test_of_images_without_a_category_the_most_uncertain_is_labelled_first(tmp_path: Path) -> None:
    class_indices = np.array([0, UNLABELLED, UNLABELLED])
    probabilities = np.array([[0.5, 0.5], [0.1, 0.9], [0.45, 0.55]], np.float32)
    predicted = predicted_of(numbered(3), probabilities)
    judged = judged_in(tmp_path / "images", predicted, class_indices)
    assert list(judged.to_label) == [2, 1]
    assert judged.proposed[1:].tolist() == [1, 1]
    assert judged.max_energy == float("inf")  # the model does not say what is unlike its images
