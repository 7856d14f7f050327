"""What a Python program gives for parameters."""

from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from train_pytorch_model.config.given_values import path_of, typed_values
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import ParameterError

TYPES = {**get_type_hints(Recipe), **get_type_hints(TrainConfig), "weights_file": Path | None}


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("epochs", np.int64(3), 3),
        ("learning_rate", 1, 1.0),
        ("learning_rate", np.float32(0.5), 0.5),
        ("balance_classes", np.bool_(True), True),
        ("image_size", [96, 128], (96, 128)),
        ("image_size", np.int16(96), 96),
        ("mean", np.array([0.25, 0.5, 0.75]), (0.25, 0.5, 0.75)),
        ("crop_fraction", None, None),
        ("horizontal_flip", False, False),
        ("framing", "pad", "pad"),
        ("weights_file", "a/b", Path("a/b")),
        ("weights_file", None, None),
    ],
)
def test_a_value_becomes_its_parameters_type(name: str, value: Any, typed: Any) -> None:
    found = typed_values({name: value}, TYPES)[name]
    assert found == typed
    assert type(found) is type(typed)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epochs", "5", "`epochs` should be an integer; it is '5'."),
        ("epochs", 2.5, "`epochs` should be an integer; it is 2.5."),
        ("epochs", True, "`epochs` should be an integer; it is True."),
        ("epochs", None, "`epochs` should be an integer; it is None."),
        ("learning_rate", "0.1", "`learning_rate` should be a number; it is '0.1'."),
        (
            "framing",
            "stretch",
            "`framing` should be 'auto', 'crop', 'pad' or 'squash'; it is 'stretch'.",
        ),
        (
            "horizontal_flip",
            "no",
            "`horizontal_flip` should be 'auto', True or False; it is 'no'.",
        ),
        ("image_size", "96", "`image_size` should be an integer or 2 integers; it is '96'."),
        ("mean", [0.5, 0.5], "`mean` should be 3 numbers; it is [0.5, 0.5]."),
        ("balance_classes", 1, "`balance_classes` should be True or False; it is 1."),
        ("weights_file", 5, "`weights_file` should be a path; it is 5."),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_is_expected(
    name: str, value: Any, message: str
) -> None:
    with for_command_line(False), pytest.raises(ParameterError) as raised:
        typed_values({name: value}, TYPES)
    assert str(raised.value) == message


def test_every_wrong_value_is_named_at_once() -> None:
    with pytest.raises(ParameterError) as raised:
        typed_values({"epochs": "5", "patience": 3, "framing": 1}, TYPES)
    assert len(str(raised.value).splitlines()) == 2


def test_several_folders_are_no_path() -> None:
    with for_command_line(False), pytest.raises(ParameterError, match="`folder` should be a path"):
        path_of("folder", ["a", "b"])
