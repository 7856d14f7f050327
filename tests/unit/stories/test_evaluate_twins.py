"""Test images of `fit` are compared with those of training, of validation, and with each other."""

import shutil
from pathlib import Path

import numpy as np
from tests.painting import paint_scene

from train_pytorch_model.datasets.grouping import hashes_of_files
from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.stories.evaluate import Training, _find_twins, _find_twins_within


def scenes(root: Path, first: int) -> ImageDirectory:
    for number, category in enumerate("ab"):
        (root / category).mkdir(parents=True)
        paint_scene(first + number).save(root / category / "1.png")
    return open_image_directory(root, root.name)


def test_pairs_of_all_kinds_are_listed_once(tmp_path: Path) -> None:
    training = scenes(tmp_path / "training", 0)
    validation = scenes(tmp_path / "validation", 10)
    scenes(tmp_path / "test", 20)
    for source, copy in (
        ("training/a/1.png", "test/a/of training.png"),
        ("validation/a/1.png", "test/a/of validation.png"),
        ("test/b/1.png", "test/b/of test.png"),
    ):
        shutil.copy(tmp_path / source, tmp_path / copy)
    test = open_image_directory(tmp_path / "test", "test")
    count = len(test)
    outcomes = Outcomes(*(np.zeros(count) for _ in Outcomes.__dataclass_fields__))
    evaluated = EvaluatedImages(test, np.arange(count), outcomes)
    hashes = hashes_of_files(test.paths())
    known = hashes_of_files(training.paths())
    pairs = [
        ("training", "a/1.png", "a/of training.png"),
        ("test", "b/1.png", "b/of test.png"),
        ("validation", "a/1.png", "a/of validation.png"),
    ]
    for training_hashes, expected in ((known, pairs), (known[:0], pairs[1:])):
        rows = _find_twins(Training(training, validation, ""), evaluated, training_hashes, hashes)
        found = [(row.port, row.file_name, row.other_file_name) for row in rows]
        assert sorted(found) == sorted(expected)

    within = _find_twins_within(evaluated, hashes)
    assert [(row.file_name, row.other_file_name) for row in within] == [
        ("b/1.png", "b/of test.png")
    ]
