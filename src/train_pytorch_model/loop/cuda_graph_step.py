"""Training steps captured in CUDA graphs: one launch for the thousand operations of a step.

A GPU runs the operations of a small batch faster than Python can launch them: with a ResNet-50 and 16 images
of 224 px, an H100 was busy for a fifth of each step. So a step is captured in a CUDA graph after a few eager
steps and replayed from then on, which takes 0.1 ms of CPU time instead of 25.

The remaining training time is then known. If it is long, PyTorch compiles the network, which takes a minute
or two and saves a quarter of every step, and the step is captured again; if that fails, it stays uncompiled.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from train_pytorch_model.data.loader import Batch
from train_pytorch_model.loop.metrics import Sums
from train_pytorch_model.loop.step import StepOutput, TrainStep

WARMUP_STEPS = 3  # per batch size, before capture: libraries choose algorithms and allocate memory
MAX_MEMORY_FRACTION = 0.4  # of the device: a graph's memory is not available to eager steps
TIMED_STEPS = 10
COMPILING_PAYS_S = 15 * 60.0  # of training left: saves about four minutes and takes two to compile
MAX_COMPILED = 2  # batch sizes: an epoch has two; after unreadable images, the next has others


def can_be_captured(network: nn.Module) -> bool:
    """False for a network with activation checkpointing, which restores the RNG state in the backward pass.

    That is DenseNet with `memory_efficient`. No other network of torchvision synchronizes with the GPU in a
    step. Those of timm have not been tried, and a capture that fails ends the run.
    """
    return not any(
        getattr(module, "memory_efficient", False) or hasattr(module, "pretrained_cfg")
        for module in network.modules()
    )


@dataclass(frozen=True)
class _CapturedStep:
    """A captured step for one batch size, with its static inputs and output."""

    graph: torch.cuda.CUDAGraph
    images: Tensor
    """(B, 3, H, W), uint8, channels last."""
    targets: Tensor
    """(B,), int64; with CutMix (B, C), float32."""
    output: StepOutput


class CudaGraphStep:
    """A `TrainStep` in a CUDA graph, with the same results; for runs of a single process.

    Steps on whole batches are captured; rare ones, such as batches with unreadable images, run eagerly.
    Weights, momentum, statistics and sums must keep their addresses.
    """

    def __init__(
        self,
        step: TrainStep,
        compiled: Callable[[Sequence[int]], nn.Module | None],
    ) -> None:
        """`compiled` returns the network compiled for images of a shape, or None if that fails."""
        device = step.world.device
        self._step, self._compiled = step, compiled
        self.steps_left = 0
        """Steps left on images of the current size when the epoch begins, which decide about compiling."""
        self._lr = torch.zeros((), device=device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._image_size = torch.Size()
        """(H, W) of the current images; steps on them are keyed by batch size."""
        self._taken: Counter[int] = Counter()
        self._captured: dict[int, _CapturedStep] = {}
        self._can_capture = can_be_captured(step.model)
        self._can_compile, self._is_long = True, False
        self._steps: dict[int, TrainStep] = {}  # the compiled ones
        self._timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] | None = []
        """Start and end of the first steps after warmup; None once they have been evaluated."""
        torch.cuda.reset_peak_memory_stats(device)  # of trials with larger batches

    def __call__(self, batch: Batch, lr: float, sums: Sums) -> StepOutput:
        """Take the step. The next one overwrites its output."""
        self._lr.fill_(lr)
        if batch.images.shape[2:] != self._image_size:
            self._reset_for(batch.images.shape[2:])
        size = len(batch.targets)
        if size != batch.global_count:
            return self._compute(self._step, batch, sums)
        if self._taken[size] >= WARMUP_STEPS and size not in self._captured:
            self._prepare(batch, sums)
        if self._taken[size] < WARMUP_STEPS:
            self._taken[size] += 1
            return self._compute(self._steps.get(size, self._step), batch, sums)
        return self._take_timed(lambda: self._take(batch, sums))

    def _reset_for(self, image_size: torch.Size) -> None:
        """Drop the steps on images of the previous size, which does not come back."""
        self._image_size = image_size
        self._taken.clear()
        self._steps.clear()
        self._is_long, self._timed = False, []
        self._drop_captured()

    def _drop_captured(self) -> None:
        if self._captured:
            torch.cuda.synchronize(self._step.world.device)  # one of them may still be running
            self._captured.clear()

    def _take(self, batch: Batch, sums: Sums) -> StepOutput:
        """Take a step after warmup: replay its graph if there is one."""
        captured = self._captured.get(len(batch.targets))
        if captured is None:
            return self._compute(self._steps.get(len(batch.targets), self._step), batch, sums)
        captured.images.copy_(batch.images)
        captured.targets.copy_(batch.targets)
        captured.graph.replay()
        return captured.output

    def _compute(self, step: TrainStep, batch: Batch, sums: Sums) -> StepOutput:
        """Take a step without a graph, on the capture stream: libraries allocate workspaces per stream."""
        current = torch.cuda.current_stream(self._step.world.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            output = step(batch, self._lr, sums)
        current.wait_stream(self._stream)
        return output

    def _prepare(self, batch: Batch, sums: Sums) -> None:
        """Compile the step for this batch size if training is long; otherwise capture it."""
        size = len(batch.targets)
        if self._is_long and size not in self._steps and len(self._steps) < MAX_COMPILED:
            network = self._compiled(batch.images.shape)
            if network is None:
                self._can_compile = self._is_long = False  # another size would fail as well
            else:
                self._steps[size] = replace(self._step, model=network)
                self._taken[size] = 0  # it warms up again
                return
        if self._can_capture:
            self._capture(batch, sums)

    def _capture(self, batch: Batch, sums: Sums) -> None:
        """Capture the step for this batch size, without executing it, unless that takes too much memory.

        A capture that fails cannot be undone: it would leave PyTorch in capture mode. So memory is checked
        first.
        """
        device, size = self._step.world.device, len(batch.targets)
        torch.cuda.empty_cache()  # as the capture does
        free, total = torch.cuda.mem_get_info(device)
        needed = torch.cuda.max_memory_allocated(device)
        if needed > min(free, MAX_MEMORY_FRACTION * total):
            self._can_capture = False
            return
        graph = torch.cuda.CUDAGraph()
        static = replace(batch, images=batch.images.clone(), targets=batch.targets.clone())
        # One memory pool for all graphs: nothing in it is needed from one step to the next.
        pool = next((captured.graph.pool() for captured in self._captured.values()), None)
        with torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local"):
            output = self._steps.get(size, self._step)(static, self._lr, sums)
        self._captured[size] = _CapturedStep(graph, static.images, static.targets, output)

    def _take_timed(self, take: Callable[[], StepOutput]) -> StepOutput:
        """Take a step; once the GPU has run the first ones, their times tell whether training is long."""
        if self._timed is None:
            return take()
        if len(self._timed) < TIMED_STEPS:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            output = take()
            end.record()
            self._timed.append((start, end))
            return output
        output = take()
        if self._timed[-1][1].query():  # type: ignore[no-untyped-call]
            step_s = statistics.median(start.elapsed_time(end) for start, end in self._timed) / 1e3
            self._timed = None
            if self._can_compile and step_s * self.steps_left >= COMPILING_PAYS_S:
                self._is_long = True
                self._drop_captured()
        return output
