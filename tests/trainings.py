"""Trainings without a command line: an engine and its state, for tests and benchmarks that look
inside.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.loader import Loader
from train_pytorch_model.data.open_caches import NO_CACHES
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.training.batches import Batches
from train_pytorch_model.training.engine import Engine, start_engine
from train_pytorch_model.training.epoch import train_epoch, validate
from train_pytorch_model.training.metrics import Metrics
from train_pytorch_model.training.plan import Plan, make_plan
from train_pytorch_model.training.state import State, StepReport
from train_pytorch_model.training.task import SingleLabel

TINY = "timm:test_efficientnet"
"""A network with batch norms that starts and trains five times as fast as a small MobileNetV3."""

PLAIN = SingleLabel(3, partial(F.cross_entropy, reduction="sum"))
"""The task of three categories, without any option of a recipe."""

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"))


SMALL = "timm:test_resnet"
"""A network that learns as a ResNet-18 does, from the first steps on, with a twentieth of its
weights.
"""


@dataclass
class Training:
    """A training that has started."""

    engine: Engine
    state: State

    @property
    def plan(self) -> Plan:
        return self.engine.plan

    def train(
        self, batches: Batches, after_step: Callable[[Tensor], None] = lambda _: None
    ) -> StepReport:
        """Train on the rest of the open epoch."""
        for loss_sum, _ in train_epoch(self.engine, self.state, batches.training(self.state)):
            after_step(loss_sum)
        assert self.state.trained
        return self.state.trained

    def validate(self, batches: Batches) -> Metrics:
        """Validate the current network."""
        for _ in validate(self.engine, self.state, batches.validation(self.state)):
            pass
        assert self.state.validated
        return self.state.validated

    def train_and_validate(self, batches: Batches) -> None:
        """Complete the open epoch."""
        self.train(batches)
        self.validate(batches)
        self.state.close_epoch(self.engine.network)


def start_training(config: TrainConfig, inputs: TrainingInputs, world: World = ALONE) -> Training:
    """Build what a training needs."""
    engine = start_engine(make_plan(config, inputs, world))
    return Training(engine, State(engine.plan))


@contextmanager
def uncached(engine: Engine) -> Iterator[Batches]:
    """The batches of a training, whose images are decoded each time."""
    with Loader(engine.world.cores) as loader:
        yield Batches(engine, loader, NO_CACHES)
