"""A submission: everything that the user requested, checked."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from train_pytorch_model.image_classifier.architectures import FAMILY_OF, unknown_architecture_message
from train_pytorch_model.submission.cluster import Nodes
from train_pytorch_model.submission.environment import Environment
from train_pytorch_model.submission.reference import Reference
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import ParameterError

EXPERIMENT = "train_pytorch_model"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,254}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One training run: a single job on a given model, or a pipeline that initializes the model first."""

    untrained_model: Reference | None = None
    architecture: str | None = None
    """Architecture of the model that the pipeline initializes; None if a model is given."""
    pretrained: bool = False
    training_dataset: Reference
    validation_dataset: Reference
    parameters: TrainConfig = field(default_factory=TrainConfig)
    nodes: Nodes
    environment: Environment = field(default_factory=Environment)
    experiment_name: str = EXPERIMENT
    register: str | None = None
    """Name under which Azure ML registers the trained model as soon as the job has written it."""
    time_limit_min: int | None = None
    """Minutes after which Azure ML ends the training; None for no limit."""

    def __post_init__(self) -> None:
        """Raise `ParameterError` with everything that is wrong."""
        problems = [*self._problems(), *self.nodes.problems(), *self.environment.problems()]
        if problems:
            raise ParameterError("\n".join(problems))

    @property
    def is_pipeline(self) -> bool:
        return self.untrained_model is None

    def _problems(self) -> Iterator[str]:
        if (self.untrained_model is None) == (self.architecture is None):
            yield (
                "Give either --untrained-model, to train that, or --architecture, to start from a new model"
                " of that architecture."
            )
        if self.architecture is not None and self.architecture not in FAMILY_OF:
            yield unknown_architecture_message(self.architecture)
        if self.pretrained and self.architecture is None:
            yield "--pretrained requires --architecture: a given model has its own weights."
        for flag, name in (("--experiment-name", self.experiment_name), ("--register", self.register)):
            if name is not None and not _NAME.fullmatch(name):
                yield (
                    f"{flag} {name!r} is not a valid name: expected a letter or digit, then letters,"
                    " digits, _, - and ., up to 255 characters in all."
                )
        if self.time_limit_min is not None and self.time_limit_min < 1:
            yield f"The time limit should be at least a minute: --time-limit is {self.time_limit_min}."
