"""The labels of images that are scored, beside the answers of a model."""

from pathlib import Path

import numpy as np
import pytest
from tests.model_directories import HALF, write_model
from tests.painting import encode, paint, paint_folders

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.labelled_folder import open_labelled
from train_pytorch_model.inputs.given_labels import GivenLabels
from train_pytorch_model.inputs.refuse_lists import refuse_lists
from train_pytorch_model.inputs.scoring import ScoringInputs, inputs_of, open_trained

RECIPE = Recipe(image_size=(8, 8), crop_fraction=1.0, augmentation="none", mean=HALF, std=HALF)
LISTS = ("1.png,blue", "2.png,blue;red", "3.png,", "4.png,green;red")
FIRST, SECOND = [0.9, 0.1], [0.1, 0.9]
BOTH, NONE = [0.9, 0.9], [0.1, 0.1]


def opened(tmp_path: Path, data: Path, thresholds: tuple[float, ...] | None) -> ScoringInputs:
    model = write_model(
        tmp_path / "model", RECIPE, categories=("red", "blue"), thresholds=thresholds
    )
    return inputs_of(open_trained(model), open_labelled(data, "Dataset").images)


def listed(tmp_path: Path) -> Path:
    root = tmp_path / "lists"
    root.mkdir()
    for index in range(1, 5):
        (root / f"{index}.png").write_bytes(encode(paint("blue", index, (8, 8))))
    (root / "labels.csv").write_text("\n".join(("file_name,labels", *LISTS)))
    return root


def correct(given: GivenLabels, *probabilities: list[float]) -> int:
    return given.count_correct(np.arange(len(probabilities)), np.array(probabilities))


def test_one_category_each_is_right_if_it_is_the_most_probable(tmp_path: Path) -> None:
    data = paint_folders(tmp_path / "data", 1)  # blue, green and red
    given = GivenLabels(opened(tmp_path, data, None))
    assert given.are_known.tolist() == [True, False, True]
    assert correct(given, SECOND, FIRST, FIRST) == 2
    assert correct(given, FIRST, SECOND, FIRST) == 1
    assert given.unknown_categories(()) == {"green": 1}


def test_a_list_is_right_if_all_of_it_is_answered_and_nothing_else(tmp_path: Path) -> None:
    given = GivenLabels(opened(tmp_path, listed(tmp_path), (0.5, 0.5)))
    assert given.are_known.tolist() == [True, True, True, False]
    assert correct(given, SECOND, BOTH, NONE, FIRST) == 3
    assert correct(given, BOTH, FIRST, FIRST, FIRST) == 0


def test_categories_that_the_model_does_not_know_are_counted(tmp_path: Path) -> None:
    given = GivenLabels(opened(tmp_path, listed(tmp_path), (0.5, 0.5)))
    assert given.unknown_categories(()) == {"green": 1}
    assert given.unknown_categories((3,)) == {}


def test_lists_are_not_compared_with_the_answers_of_a_model_of_one_category(tmp_path: Path) -> None:
    given = GivenLabels(opened(tmp_path, listed(tmp_path), None))
    assert not given.are_known.any()
    assert correct(given, SECOND, BOTH, NONE, FIRST) == 0


def test_what_is_off_for_lists_says_why(tmp_path: Path) -> None:
    inputs = opened(tmp_path, listed(tmp_path), None)
    refuse_lists(inputs.spec.answers, ParameterError("of one category"))
    with pytest.raises(ParameterError, match="of lists"):
        refuse_lists(inputs.images.labels, ParameterError("of lists"))
