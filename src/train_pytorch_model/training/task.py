"""What the labels of images mean to training: chosen once, from the data, and passed down."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.training.loss import LossSum, make_loss
from train_pytorch_model.training.margins import margins_of
from train_pytorch_model.training.metrics import ranks_of
from train_pytorch_model.training.outcomes import OutcomeRows


@dataclass(frozen=True)
class Task(ABC):
    """The loss, the metrics, the targets and the decisions of one kind of labels.

    Logits are (B, C). Targets are those of a batch, after any CutMix.
    """

    num_categories: int
    loss_sum: LossSum  # of training

    @abstractmethod
    def validation_loss_sum(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the losses of images, without any option of the recipe."""

    @abstractmethod
    def ranks(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return how many categories are above the best true one, (B,): 0 is a hit."""

    @abstractmethod
    def margins(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return how surely the given labels are preferred: (2, B), int32, see `margins`."""

    @abstractmethod
    def collect_outcomes(self, device: torch.device) -> OutcomeRows:
        """Return what collects the outcomes of the images of a pass."""

    @abstractmethod
    def as_probabilities(self, targets: Tensor) -> Tensor:
        """Return the targets of a batch as probabilities (B, C), float32, which can be mixed."""


@dataclass(frozen=True)
class SingleLabel(Task):
    """Each image has one category; its targets are class indices (B,)."""

    def validation_loss_sum(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="sum")

    def ranks(self, logits: Tensor, targets: Tensor) -> Tensor:
        return ranks_of(logits, targets)

    def margins(self, logits: Tensor, targets: Tensor) -> Tensor:
        return margins_of(logits, targets)

    def collect_outcomes(self, device: torch.device) -> OutcomeRows:
        return OutcomeRows(device)

    def as_probabilities(self, targets: Tensor) -> Tensor:
        probabilities = torch.zeros(len(targets), self.num_categories, device=targets.device)
        return probabilities.scatter_(1, targets.unsqueeze(1), 1.0)


def choose_task(inputs: TrainingInputs, world: World) -> Task:
    """Return the task of the training images."""
    return SingleLabel(len(inputs.categories), make_loss(inputs, world))
