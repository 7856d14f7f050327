"""The seven parameters of Train PyTorch Model."""

import math
from dataclasses import dataclass, fields
from typing import Annotated

import tyro

from train_pytorch_model.config.wording import (
    WARMUP_FLAG,
    display_name,
    flag,
    out_of_range,
    parameter,
)
from train_pytorch_model.errors import ParameterError


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
    """Stop when the validation loss has not fallen for this many epochs in a row. Greater than 0.
    """
    print_frequency: int = 10
    """Steps of an epoch between two log lines. Greater than 0."""

    def __post_init__(self) -> None:
        """Raise `ParameterError` with every parameter that is out of range."""
        counts = ("epochs", "batch_size", "patience", "print_frequency")
        broken = {name: "greater than 0" for name in counts if getattr(self, name) <= 0}
        if self.warmup_epochs < 0:
            broken["warmup_epochs"] = "greater than or equal to 0"
        if not math.isfinite(self.learning_rate):
            broken["learning_rate"] = "a finite number"
        elif self.learning_rate <= 0:
            broken["learning_rate"] = "greater than 0"
        problems = [
            out_of_range(display_name(name), rule, parameter(name), getattr(self, name))
            for name, rule in broken.items()
        ]
        if problems:
            raise ParameterError("\n".join(problems))

    def as_params(self) -> dict[str, int | float]:
        """Return the values by the names of the component's inputs (`epochs`, …), for MLflow."""
        return {name[2:].replace("-", "_"): value for name, value in self.as_flags().items()}

    def as_flags(self) -> dict[str, int | float]:
        """Return the values by flag (`--epochs`, …), in the documented order."""
        return {flag(field.name): getattr(self, field.name) for field in fields(self)}

    def as_text(self) -> str:
        """Return the parameters as options of a command line."""
        return " ".join(f"{name} {value}" for name, value in self.as_flags().items())
