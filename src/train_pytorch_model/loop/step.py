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
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_pytorch_model.data.loader import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.loop.metrics import Sums, margins_of
from train_pytorch_model.loop.optimizer import LossSum, Precision, set_learning_rate

WARMUP_STEPS = 3  # per batch size, before capture: libraries choose algorithms and allocate memory
MAX_MEMORY_FRACTION = 0.4  # of the device: a graph's memory is not available to eager steps
TIMED_STEPS = 10
DECIDED_AT = (
    WARMUP_STEPS + 2 * TIMED_STEPS
)  # the step on images of a size at which compiling is decided
COMPILING_PAYS_S = 15 * 60.0  # of training left: saves about four minutes and takes two to compile
MAX_COMPILED = 2  # batch sizes: an epoch has two; after unreadable images, the next has others


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


def can_be_captured(network: nn.Module) -> bool:
    """False for a network with activation checkpointing, which restores the RNG state in the
    backward pass.

    That is DenseNet with `memory_efficient`. No other network of torchvision synchronizes with the
    GPU in a step. Those of timm have not been tried, and a capture that fails ends the run.
    """
    each = network.modules()
    return not any(
        getattr(m, "memory_efficient", False) or hasattr(m, "pretrained_cfg") for m in each
    )


@dataclass(frozen=True)
class _CapturedStep:
    """A captured step for one kind of batch, with its static inputs and output."""

    graphs: Sequence[torch.cuda.CUDAGraph]  # the step; of several processes, gradients and update
    images: Tensor  # (B, 3, H, W), uint8, channels last
    targets: Tensor  # (B,), int64; with CutMix (B, C), float32
    output: StepOutput


class CudaGraphStep:
    """A `TrainStep` in CUDA graphs, with the same results.

    Steps on whole batches are captured; rare ones, such as batches with unreadable images, run
    eagerly. Weights, momentum, statistics and sums must keep their addresses.
    """

    def __init__(
        self, step: TrainStep, compiled: Callable[[Sequence[int]], nn.Module | None]
    ) -> None:
        """`compiled` returns the network compiled for images of a shape, or None if that fails."""
        self._step, self._compiled, self._device = step, compiled, step.world.device
        self.steps_left = (
            0  # left on images of this size when the epoch begins: is compiling worth it?
        )
        self._lr = torch.zeros((), device=self._device)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._image_size = torch.Size()
        """(H, W) of the current images. Steps on them are of one kind if their numbers of images,
        in this process and in all, which scale the loss, are the same."""
        self._num_steps = 0  # on images of this size; the same in all processes
        self._taken: Counter[tuple[int, int]] = Counter()
        self._captured: dict[tuple[int, int], _CapturedStep] = {}
        self._can_capture = can_be_captured(step.model)
        self._can_compile, self._is_long = True, False
        self._steps: dict[int, TrainStep] = {}  # the compiled ones, by batch size
        self._timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        """Start and end of the first steps after warmup."""
        torch.cuda.reset_peak_memory_stats(self._device)  # of trials with larger batches

    def __call__(self, batch: Batch, lr: float, sums: Sums) -> StepOutput:
        """Take the step. The next one overwrites its output."""
        self._lr.fill_(lr)
        if batch.images.shape[2:] != self._image_size:
            self._reset_for(batch.images.shape[2:])
        self._num_steps += 1
        if self._num_steps == DECIDED_AT:
            self._decide_to_compile()
        size, kind = len(batch.targets), (len(batch.targets), batch.global_count)
        if size < batch.global_count // self._step.world.size:
            return self._compute(self._step, batch, sums)
        if self._taken[kind] >= WARMUP_STEPS and kind not in self._captured:
            self._prepare(kind, batch, sums)
        if self._taken[kind] < WARMUP_STEPS:
            self._taken[kind] += 1
            return self._compute(self._steps.get(size, self._step), batch, sums)
        if len(self._timed) == TIMED_STEPS:
            return self._take(kind, batch, sums)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        output = self._take(kind, batch, sums)
        end.record()
        self._timed.append((start, end))
        return output

    def _reset_for(self, image_size: torch.Size) -> None:
        """Drop the steps on images of the previous size, which does not come back."""
        self._image_size = image_size
        self._taken.clear()
        self._steps.clear()
        self._is_long, self._timed, self._num_steps = False, [], 0
        self._drop_captured()

    def _drop_captured(self) -> None:
        if self._captured:
            torch.cuda.synchronize(self._device)  # one of them may still be running
            self._captured.clear()

    def _take(self, kind: tuple[int, int], batch: Batch, sums: Sums) -> StepOutput:
        """Take a step after warmup: replay its graph if there is one."""
        captured = self._captured.get(kind)
        if captured is None:
            return self._compute(self._steps.get(kind[0], self._step), batch, sums)
        captured.images.copy_(batch.images)
        captured.targets.copy_(batch.targets)
        first, *rest = captured.graphs
        first.replay()
        for graph in rest:
            self._step.average_gradients()
            graph.replay()
        return captured.output

    def _compute(self, step: TrainStep, batch: Batch, sums: Sums) -> StepOutput:
        """Take a step without a graph, on the capture stream: libraries allocate workspaces per
        stream.
        """
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            output = step(batch, self._lr, sums)
        current.wait_stream(self._stream)
        return output

    def _prepare(self, kind: tuple[int, int], batch: Batch, sums: Sums) -> None:
        """Compile the step for this batch size if training is long; otherwise capture it, if there
        is room.

        A capture does not execute the step. One that fails cannot be undone: it would leave PyTorch
        in capture mode. So memory is checked first.
        """
        size, _ = kind
        if self._is_long and size not in self._steps and len(self._steps) < MAX_COMPILED:
            network = self._compiled(batch.images.shape)
            if network is not None:
                self._steps[size] = replace(self._step, model=network)
                self._taken[kind] = 0  # it warms up again
                return
            self._can_compile = self._is_long = False  # another size would fail as well
        if not self._can_capture:
            return
        torch.cuda.empty_cache()  # as the capture does
        free, total = torch.cuda.mem_get_info(self._device)
        if torch.cuda.max_memory_allocated(self._device) > min(free, MAX_MEMORY_FRACTION * total):
            self._can_capture = False
            return
        step = self._steps.get(size, self._step)
        static = replace(batch, images=batch.images.clone(), targets=batch.targets.clone())
        capture = partial(torch.cuda.graph, stream=self._stream, capture_error_mode="thread_local")
        # One memory pool for all graphs: nothing in it is needed from one step to the next.
        pool = next((captured.graphs[0].pool() for captured in self._captured.values()), None)
        graphs = [torch.cuda.CUDAGraph()]
        with capture(graphs[0], pool):
            output = step.compute_gradients(static, sums)
            if not step.gradients:
                step.update(self._lr)
        if step.gradients:
            graphs.append(torch.cuda.CUDAGraph())
            with capture(graphs[1], graphs[0].pool()):
                step.update(self._lr)
        self._captured[kind] = _CapturedStep(graphs, static.images, static.targets, output)

    def _decide_to_compile(self) -> None:
        """Compile from here on if the slowest process has long to train; collective."""
        step_s = 0.0
        if self._timed:
            self._timed[-1][1].synchronize()  # ended some steps ago
            step_s = statistics.median(start.elapsed_time(end) for start, end in self._timed) / 1e3
        slowest = self._step.world.max(torch.tensor(step_s, device=self._device))
        if self._can_compile and slowest.item() * self.steps_left >= COMPILING_PAYS_S:
            self._is_long = True
            self._drop_captured()
