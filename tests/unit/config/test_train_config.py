"""The seven training parameters."""

import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import display_name, for_command_line
from train_pytorch_model.errors import ParameterError


def test_defaults_are_the_documented_ones() -> None:
    assert TrainConfig().as_flags() == {
        "--epochs": 5,
        "--batch-size": 16,
        "--warmup-step-number": 0,
        "--learning-rate": 0.001,
        "--random-seed": 1,
        "--patience": 3,
        "--print-frequency": 10,
    }


def test_mlflow_parameters_have_the_names_of_the_inputs() -> None:
    assert TrainConfig(epochs=7, warmup_epochs=2).as_params() == {
        "epochs": 7,
        "batch_size": 16,
        "warmup_step_number": 2,
        "learning_rate": 0.001,
        "random_seed": 1,
        "patience": 3,
        "print_frequency": 10,
    }


def test_parameters_have_the_designers_names() -> None:
    assert [display_name(field.name) for field in fields(TrainConfig)] == [
        "Epochs",
        "Batch size",
        "Warmup step number",
        "Learning rate",
        "Random seed",
        "Patience",
        "Print frequency",
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, 'Parameter "Epochs" value should be greater than 0: --epochs is 0.'),
        (
            {"batch_size": -3},
            'Parameter "Batch size" value should be greater than 0: --batch-size is -3.',
        ),
        (
            {"warmup_epochs": -1},
            'Parameter "Warmup step number" value should be greater than or equal to 0:'
            " --warmup-step-number is -1.",
        ),
        (
            {"learning_rate": 0.0},
            'Parameter "Learning rate" value should be greater than 0: --learning-rate is 0.0.',
        ),
        (
            {"learning_rate": -1e-9},
            'Parameter "Learning rate" value should be greater than 0: --learning-rate is -1e-09.',
        ),
        (
            {"learning_rate": math.nan},
            'Parameter "Learning rate" value should be a finite number: --learning-rate is nan.',
        ),
        (
            {"learning_rate": math.inf},
            'Parameter "Learning rate" value should be a finite number: --learning-rate is inf.',
        ),
        ({"patience": 0}, 'Parameter "Patience" value should be greater than 0: --patience is 0.'),
        (
            {"print_frequency": 0},
            'Parameter "Print frequency" value should be greater than 0: --print-frequency is 0.',
        ),
    ],
)
def test_a_value_out_of_range_is_named_with_its_rule(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as raised:
        TrainConfig(**values)
    assert str(raised.value) == message


def test_all_values_out_of_range_are_named_at_once() -> None:
    with pytest.raises(ParameterError) as raised:
        TrainConfig(epochs=0, patience=-1, warmup_epochs=-2, learning_rate=math.nan)
    lines = str(raised.value).splitlines()
    assert [line.split('"')[1] for line in lines] == [
        "Epochs",
        "Patience",
        "Warmup step number",
        "Learning rate",
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"random_seed": -(10**30)},
        {"random_seed": 0},
        {"learning_rate": 5e-324},
        {"warmup_epochs": 0},
        {"warmup_epochs": 10**6},
        {"epochs": 1, "batch_size": 1, "patience": 1, "print_frequency": 1},
    ],
)
def test_values_at_the_edge_of_their_range_are_accepted(values: dict[str, Any]) -> None:
    config = TrainConfig(**values)
    assert {name: getattr(config, name) for name in values} == values


def test_the_parameters_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TrainConfig().epochs = 3  # type: ignore[misc]  # the point of the test


def test_an_invalid_parameter_has_exit_status_2() -> None:
    assert ParameterError.exit_status == 2


def test_in_python_a_parameter_is_named_without_its_option() -> None:
    with (
        for_command_line(False),
        pytest.raises(ParameterError, match=r"^Parameter \"Epochs\" value .*: `epochs` is 0\.$"),
    ):
        TrainConfig(epochs=0)
