"""What the labels of images mean to training: chosen once, from the data, and passed down."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.metrics import Outcomes, join
from train_pytorch_model.evaluation.multi_label import (
    MultiLabelOutcomes,
    average_precisions,
    mean_of,
)
from train_pytorch_model.evaluation.thresholds import fit_thresholds
from train_pytorch_model.formats.label_kinds import LabelKind, OnePerImage, SetsPerImage
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.training.loss import (
    LossSum,
    base_rates,
    make_loss,
    make_multi_label_loss,
    positive_weights,
)
from train_pytorch_model.training.margins import label_margins_of, margins_of
from train_pytorch_model.training.metrics import best_ranks_of, ranks_of
from train_pytorch_model.training.outcomes import MultiLabelRows, OutcomeRows


@dataclass(frozen=True)
class Task(ABC):
    """The loss, the metrics, the targets and the decisions of one kind of labels.

    Logits are (B, C). Targets are those of a batch, after any CutMix.
    """

    top1_name = "accuracy"  # of an epoch's `top1`, for the log
    whitens_features = False  # of a frozen backbone, for steps of a new last layer
    energies_tell = True  # whether they tell images unlike those of training

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
    def collect_outcomes(self, device: torch.device) -> OutcomeRows | MultiLabelRows:
        """Return what collects the outcomes of the images of a pass."""

    def further_metrics(
        self,
        outcomes: Outcomes | MultiLabelOutcomes,  # noqa: ARG002
        world: World,  # noqa: ARG002
    ) -> Mapping[str, float]:
        """Return metrics of a validation that only this task has, by their names. Collective."""
        return {}

    def decide(
        self, outcomes: Outcomes | MultiLabelOutcomes
    ) -> tuple[Outcomes | MultiLabelOutcomes, tuple[float, ...] | None]:
        """Return validation outcomes as the model will answer them, and its thresholds.

        These are by class index. There are none if the most probable category is the answer.
        """
        return outcomes, None

    def initial_bias(self) -> Tensor | None:
        """Return what the bias of a new last layer starts from, (C,); None for zeros."""
        return None

    def describe(self, inputs: TrainingInputs) -> str:  # noqa: ARG002
        """Return what the plan says of the labels; empty for nothing."""
        return ""

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


@dataclass(frozen=True)
class MultiLabel(Task):
    """Each image has any number of categories; its targets are which ones, (B, C), float32."""

    top1_name = "top-1 accuracy"
    whitens_features = True
    energies_tell = False  # an image of none of the categories would be taken for one

    bias: Tensor  # (C,), the log-odds of the base rates

    def validation_loss_sum(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")

    def ranks(self, logits: Tensor, targets: Tensor) -> Tensor:
        return best_ranks_of(logits, targets)

    def margins(self, logits: Tensor, targets: Tensor) -> Tensor:
        return label_margins_of(logits, targets)

    def collect_outcomes(self, device: torch.device) -> MultiLabelRows:
        return MultiLabelRows(self.num_categories, device)

    def as_probabilities(self, targets: Tensor) -> Tensor:
        return targets

    def further_metrics(
        self, outcomes: Outcomes | MultiLabelOutcomes, world: World
    ) -> Mapping[str, float]:
        parts = world.gather_on_main([outcomes])
        metrics: dict[str, float] = {}
        if world.is_main:
            joined = join(parts)
            assert isinstance(joined, MultiLabelOutcomes)
            precisions = average_precisions(joined.targets, joined.probabilities)
            metrics["Mean average precision"] = mean_of(precisions)
        return dict(world.broadcast(metrics))

    def decide(
        self, outcomes: Outcomes | MultiLabelOutcomes
    ) -> tuple[Outcomes | MultiLabelOutcomes, tuple[float, ...] | None]:
        assert isinstance(outcomes, MultiLabelOutcomes)
        thresholds, answered = fit_thresholds(outcomes.targets, outcomes.probabilities)
        return replace(outcomes, answered=answered), tuple(thresholds.tolist())

    def initial_bias(self) -> Tensor | None:
        return self.bias

    def describe(self, inputs: TrainingInputs) -> str:
        images = inputs.training
        mean = images.class_counts().sum() / len(images)
        text = (
            f"any number an image, {mean:.1f} on average; a binary cross entropy for each category,"
            " whose last layer starts from how frequent they are"
        )
        off = []
        if not inputs.recipe.label_smoothing:
            off.append("label smoothing, which would make rare categories likelier")
        if not inputs.recipe.cutmix:
            off.append("CutMix, whose patch may hide what is labelled")
        if off:
            text += f"; without {', and '.join(off)}"
        return text


def choose_task(inputs: TrainingInputs, world: World) -> Task:
    """Return the task of the training images."""
    return _CHOICES[type(inputs.training.labels)](inputs, world)


def _single_label(inputs: TrainingInputs, world: World) -> SingleLabel:
    return SingleLabel(len(inputs.categories), make_loss(inputs, world))


def _multi_label(inputs: TrainingInputs, world: World) -> MultiLabel:
    rates = base_rates(inputs)
    odds = rates / (1 - rates)
    if inputs.recipe.balance_classes:
        odds = odds * positive_weights(inputs)
    bias = torch.tensor(np.log(odds), dtype=torch.float32)
    return MultiLabel(len(inputs.categories), make_multi_label_loss(inputs, world), bias)


_CHOICES: Mapping[type[LabelKind], Callable[[TrainingInputs, World], Task]] = {
    OnePerImage: _single_label,
    SetsPerImage: _multi_label,
}
