"""A training step: an optimizer update on one batch, with all options decided beforehand."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.training.flat_gradients import FlatGradients
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.optimizer import set_learning_rate
from train_pytorch_model.training.precision import Precision
from train_pytorch_model.training.task import Task


@dataclass(frozen=True)
class StepOutput:
    """What a step computed of its images, on the device.

    These are the first B images of the batch: all of them, or none of a batch that was too small.
    """

    loss_sum: Tensor  # the sum of their losses, detached
    margins: Tensor  # (2, B), int32: see `margins`


# Takes a step at a learning rate, without waiting for the device, and adds its images to the sums.
Step = Callable[[Batch, float, Sums], StepOutput]


@dataclass(frozen=True)
class TrainStep:
    """A step, computed operation by operation."""

    model: nn.Module  # uint8 images (B, 3, H, W) → logits (B, C); DDP averages its gradients
    optimizer: Optimizer
    scaler: GradScaler  # scales the loss; disabled unless the precision is float16
    task: Task
    precision: Precision
    world: World
    # Images that fit into memory at once; None if a whole batch does.
    micro_batch: int | None = None
    # The fewest images that batch norm can work on: a smaller local batch is skipped, and a
    # micro-batch may exceed `micro_batch` so that no other gets fewer.
    min_local_batch: int = 1
    # Where the gradients of several processes are averaged, without DDP.
    gradients: FlatGradients | None = None

    def __call__(self, batch: Batch, lr: float | Tensor, sums: Sums) -> StepOutput:
        """Take the step, without waiting for the device."""
        output = self.compute_gradients(batch, sums)
        self.average_gradients()
        self.update(lr)
        return output

    def compute_gradients(self, batch: Batch, sums: Sums) -> StepOutput:
        """Compute the gradients of this process's images; in DDP, their mean over the processes."""
        if self.gradients:
            self.gradients.clear()
        num_images = self._num_trained(batch)
        num_parts = self._num_micro_batches(num_images)
        device = self.world.device
        images = batch.images[:num_images].to(device, non_blocking=True)  # (B, 3, H, W)
        targets = batch.targets[:num_images].to(device, non_blocking=True)  # (B,) or (B, C)

        total = torch.zeros((), device=device)
        margins = []
        parts = zip(images.tensor_split(num_parts), targets.tensor_split(num_parts), strict=True)
        for number, (some_images, some_targets) in enumerate(parts, start=1):
            with self.world.gradient_sync(self.model, is_last=number == num_parts):
                with self.precision.autocast(device):
                    logits = self.model(some_images)  # (B, C)
                loss_sum = self.task.loss_sum(logits.float(), some_targets)
                # The mean over all images of the step, times the processes, by which DDP divides.
                loss = loss_sum * (self.world.size / batch.global_count)
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            sums.add(loss_sum, self.task.ranks(logits, some_targets))
            total += loss_sum.detach()
            margins.append(self.task.margins(logits, some_targets))  # (2, B)
        return StepOutput(total, torch.cat(margins, dim=1))

    def average_gradients(self) -> None:
        """Average the gradients over the processes, unless DDP has done so."""
        if self.gradients:
            self.world.average_(self.gradients.values)

    def update(self, lr: float | Tensor) -> None:
        """Update the weights."""
        set_learning_rate(self.optimizer, lr)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def _num_trained(self, batch: Batch) -> int:
        """Return how many images to train on: all, or none if unreadable ones leave too few.

        The next epoch trains on those few.
        """
        num_images = len(batch.targets)
        return num_images if num_images >= self.min_local_batch else 0

    def _num_micro_batches(self, num_images: int) -> int:
        """Return into how many parts the images are split, each large enough for batch norm."""
        if self.micro_batch is None:
            return 1
        needed = math.ceil(num_images / self.micro_batch)
        return max(1, min(needed, num_images // self.min_local_batch))
