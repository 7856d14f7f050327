"""Training steps: an optimizer update on one batch, with all options decided beforehand; eager or
replayed.

A GPU runs the operations of a small batch faster than Python can launch them: with a ResNet-50 and
16 images of 224 px, an H100 was busy for a fifth of each step. So a step is captured in a CUDA
graph after a few eager steps and replayed from then on, which takes 0.1 ms of CPU time instead of
25.

With several GPUs there are two graphs, up to the gradients and for the update; in between the
processes average all gradients at once. So a process whose step cannot be replayed takes part as
well.

If much training is left, PyTorch compiles the network, which takes a minute or two and saves a
quarter of every step, and the step is captured again; if that fails, it stays uncompiled.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.training.loss import LossSum
from train_pytorch_model.training.margins import margins_of
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.optimizer import set_learning_rate
from train_pytorch_model.training.precision import Precision


@dataclass(frozen=True)
class StepOutput:
    """What a step has found out about its images, on the device."""

    loss_sum: Tensor  # the sum of the losses, detached
    # (2, B), int32: `margins_of` the first B images, which are all unless too few are left.
    margins: Tensor


Step = Callable[
    [Batch, float, Sums], StepOutput
]  # without waiting for the device; adds to the sums


class FlatGradients:
    """All gradients in one float32 tensor, which several processes average at once, where it stays."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        """Gradients have the memory format of the parameters, which are dense."""
        self._parameters = list(parameters)
        sizes = [parameter.numel() for parameter in self._parameters]
        self.values = torch.zeros(sum(sizes), device=self._parameters[0].device)
        """(N,), of all parameters, one after the other."""
        self._gradients = [
            part.as_strided(parameter.shape, parameter.stride())
            for part, parameter in zip(
                torch.split(self.values, sizes), self._parameters, strict=True
            )
        ]

    def clear(self) -> None:
        """Let the next backward pass add its gradients here, to zeros."""
        self.values.zero_()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient


@dataclass(frozen=True)
class TrainStep:
    """A step, computed operation by operation."""

    model: nn.Module  # uint8 images (B, 3, H, W) → logits (B, C); DDP averages its gradients
    optimizer: Optimizer
    scaler: GradScaler  # scales the loss; disabled unless the precision is float16
    loss_sum: LossSum
    precision: Precision
    world: World
    micro_batch: int | None = (
        None  # images that fit into memory at once; None if a whole batch does
    )
    min_local_batch: int = 1
    """The fewest images that batch norm can work on: a smaller local batch is skipped, and a
    micro-batch may exceed `micro_batch` so that no other gets fewer."""
    gradients: FlatGradients | None = (
        None  # where those of several processes are averaged, without DDP
    )

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
        # Unreadable images may leave a batch too small; the rest of it is trained in the next
        # epoch.
        taken = len(batch.targets) if len(batch.targets) >= self.min_local_batch else 0
        images = batch.images[:taken].to(self.world.device, non_blocking=True)  # (B, 3, H, W)
        targets = batch.targets[:taken].to(self.world.device, non_blocking=True)  # (B,)
        num_parts = 1
        if self.micro_batch is not None:
            num_parts = max(
                1, min(math.ceil(taken / self.micro_batch), taken // self.min_local_batch)
            )
        total = torch.zeros((), device=self.world.device)
        margins = []
        parts = zip(images.tensor_split(num_parts), targets.tensor_split(num_parts), strict=True)
        for number, (some_images, some_targets) in enumerate(parts, start=1):
            with self.world.gradient_sync(self.model, is_last=number == num_parts):
                with self.precision.autocast(self.world.device):
                    logits = self.model(some_images)  # (B, C)
                loss_sum = self.loss_sum(logits.float(), some_targets)
                # DDP divides by the number of processes; we want the mean over all images of the
                # step.
                loss = loss_sum * (self.world.size / batch.global_count)
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            sums.add(loss_sum, logits, some_targets)
            total += loss_sum.detach()
            margins.append(margins_of(logits, some_targets))
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
