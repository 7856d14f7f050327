"""A step on a GPU as CUDA graphs that are replayed, or compiled."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.step import StepOutput, TrainStep

WARMUP_STEPS = 3  # per batch size, before capture: libraries choose algorithms and allocate memory
MAX_MEMORY_FRACTION = 0.4  # of the device: a graph's memory is not available to eager steps
TIMED_STEPS = 10
DECIDED_AT = (
    WARMUP_STEPS + 2 * TIMED_STEPS
)  # the step on images of a size at which compiling is decided
COMPILING_PAYS_S = 15 * 60.0  # of training left: saves about four minutes and takes two to compile
MAX_COMPILED = 2  # batch sizes: an epoch has two; after unreadable images, the next has others


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
