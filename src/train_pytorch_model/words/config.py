"""The seven parameters of the component: names, ranges, defaults and help texts; the kinds of options."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from train_pytorch_model.words.errors import ParameterError, out_of_range
from train_pytorch_model.words.wording import parameter

# The component's documented name, kept for the flag and the port, where it differs from the field's.
WARMUP_FLAG = "warmup-step-number"


def shown_as(metavar: str) -> Any:
    """How `--help` shows the value of an option that may be left out."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Switch = Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help_behavior_hint="")]
"""A flag that is off unless given: `--quiet`, without a `--no-quiet`."""
OptionalPath = Annotated[Path | None, shown_as("PATH")]
OptionalInt = Annotated[int | None, shown_as("INT")]
OptionalName = Annotated[str | None, shown_as("NAME")]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The seven parameters of Train PyTorch Model."""

    epochs: int = 5
    """How many times the whole training dataset is iterated. Greater than 0."""

    batch_size: int = 16
    """Images per process and step. Greater than 0."""

    warmup_epochs: Annotated[int, tyro.conf.arg(name=WARMUP_FLAG)] = 0
    """Epochs of linear warmup of the learning rate. 0 or more."""

    learning_rate: float = 0.001
    """Learning rate per process; the peak is this times the number of processes. Greater than 0."""

    random_seed: int = 1
    """Any integer. The same seed, data and number of processes give the same run."""

    patience: int = 3
    """Stop when the validation loss has not fallen for this many epochs in a row. Greater than 0."""

    print_frequency: int = 10
    """Steps of an epoch between two log lines. Greater than 0."""

    def __post_init__(self) -> None:
        """Raise `ParameterError` with every parameter that is out of range."""
        problems = [
            _out_of_range(name, getattr(self, name), "greater than 0")
            for name in ("epochs", "batch_size", "patience", "print_frequency")
            if getattr(self, name) <= 0
        ]
        if self.warmup_epochs < 0:
            problems.append(_out_of_range("warmup_epochs", self.warmup_epochs, "greater than or equal to 0"))
        if not math.isfinite(self.learning_rate):
            problems.append(_out_of_range("learning_rate", self.learning_rate, "a finite number"))
        elif self.learning_rate <= 0:
            problems.append(_out_of_range("learning_rate", self.learning_rate, "greater than 0"))
        if problems:
            raise ParameterError("\n".join(problems))

    def as_params(self) -> dict[str, int | float]:
        """The values by the names of the component's inputs (`epochs`, …), for MLflow."""
        return {name[2:].replace("-", "_"): value for name, value in self.as_flags().items()}

    def as_flags(self) -> dict[str, int | float]:
        """The values by flag (`--epochs`, …), in the documented order."""
        return {flag(field.name): getattr(self, field.name) for field in fields(self)}


def display_name(field_name: str) -> str:
    """The parameter's name in the designer: `batch_size` → `Batch size`."""
    return flag(field_name)[2:].replace("-", " ").capitalize()


def flag(field_name: str) -> str:
    """The command-line flag of a field: `epochs` → `--epochs`."""
    name = WARMUP_FLAG if field_name == "warmup_epochs" else field_name.replace("_", "-")
    return f"--{name}"


def _out_of_range(field_name: str, value: float, rule: str) -> str:
    return out_of_range(display_name(field_name), rule, parameter(field_name), value)
