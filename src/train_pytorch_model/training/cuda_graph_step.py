"""A step on a GPU as CUDA graphs that are replayed, or compiled.

A GPU runs the operations of a small batch faster than Python can launch them: with a ResNet-50 and
16 images of 224 px, an H100 was busy for a fifth of each step. So a step is captured in a CUDA
graph after a few eager steps and replayed from then on, which takes 0.1 ms of CPU time instead of
25.

With several GPUs there are two graphs, up to the gradients and for the update; in between the
processes average all gradients at once. So a process whose step cannot be replayed takes part as
well.

If much training remains, PyTorch compiles the network, which takes a minute or two and saves a
quarter of every step, and the step is captured again; if that fails, it stays uncompiled.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.step import StepOutput, TrainStep

WARMUP_STEPS = 3  # per kind of batch: libraries choose algorithms and allocate memory
MAX_MEMORY_FRACTION = 0.4  # of the device: a graph's memory is not available to eager steps
TIMED_STEPS = 10
# The step on images of a size at which compiling is decided.
DECIDED_AT = WARMUP_STEPS + 2 * TIMED_STEPS
# Of remaining training: compiling saves about four minutes of it, and takes two.
COMPILING_PAYS_S = 15 * 60.0
MAX_COMPILED = 2  # batch sizes: an epoch has two; after unreadable images, the next has others


def can_be_captured(network: nn.Module) -> bool:
    """Return whether a network's steps never wait for the GPU.

    Activation checkpointing does, which restores the RNG state in the backward pass: that is
    DenseNet with `memory_efficient`, and no other network of torchvision. Those of timm have not
    been tried, and a capture that fails ends the run.
    """
    for module in network.modules():
        is_of_timm = hasattr(module, "pretrained_cfg")
        if is_of_timm or getattr(module, "memory_efficient", False):
            return False
    return True


class _BatchKind(NamedTuple):
    """What a captured step depends on, for images of one size."""

    num_images: int
    global_count: int  # which scales the loss


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
        self, step: TrainStep, compile_for: Callable[[Sequence[int]], nn.Module | None]
    ) -> None:
        """`compile_for` returns the network compiled for images of a shape, or None on failure."""
        self._step = step
        self._compile_for = compile_for
        self._device = step.world.device
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._lr = torch.zeros((), device=self._device)

        # When an epoch begins, the steps to come on images of this size: is compiling worth it?
        self.remaining_steps = 0
        self._can_capture = can_be_captured(step.model)
        self._can_compile = True
        self._is_compiling_worthwhile = False

        # Of the current images:
        self._image_size = torch.Size()  # (H, W)
        self._num_steps = 0  # the same in all processes
        self._num_warmups: Counter[_BatchKind] = Counter()
        self._captured: dict[_BatchKind, _CapturedStep] = {}
        self._compiled: dict[int, TrainStep] = {}  # by the number of images
        # Start and end of the first steps after warmup.
        self._timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

        torch.cuda.reset_peak_memory_stats(self._device)  # of trials with larger batches

    def __call__(self, batch: Batch, lr: float, sums: Sums) -> StepOutput:
        """Take the step. The next one overwrites its output."""
        self._lr.fill_(lr)
        image_size = batch.images.shape[2:]
        if image_size != self._image_size:
            self._reset_for(image_size)
        self._num_steps += 1
        if self._num_steps == DECIDED_AT:
            self._decide_to_compile()

        kind = _BatchKind(len(batch.targets), batch.global_count)
        is_whole = kind.num_images >= kind.global_count // self._step.world.size
        if not is_whole:
            return self._run_eagerly(self._step, batch, sums)
        if self._is_warm(kind) and kind not in self._captured:
            self._prepare(kind, batch, sums)  # a compiled step warms up again
        if not self._is_warm(kind):
            self._num_warmups[kind] += 1
            return self._run_eagerly(self._step_for(kind), batch, sums)
        if len(self._timed) < TIMED_STEPS:
            return self._run_timed(kind, batch, sums)
        return self._run(kind, batch, sums)

    def _reset_for(self, image_size: torch.Size) -> None:
        """Drop the steps on images of the previous size, which does not come back."""
        self._image_size = image_size
        self._num_steps = 0
        self._num_warmups.clear()
        self._compiled.clear()
        self._timed = []
        self._is_compiling_worthwhile = False
        self._drop_captured()

    def _drop_captured(self) -> None:
        if self._captured:
            torch.cuda.synchronize(self._device)  # one of them may still be running
            self._captured.clear()

    def _is_warm(self, kind: _BatchKind) -> bool:
        return self._num_warmups[kind] >= WARMUP_STEPS

    def _step_for(self, kind: _BatchKind) -> TrainStep:
        """Return the step to run eagerly on a kind of batch: the compiled one if there is one."""
        return self._compiled.get(kind.num_images, self._step)

    def _run_timed(self, kind: _BatchKind, batch: Batch, sums: Sums) -> StepOutput:
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        output = self._run(kind, batch, sums)
        end.record()
        self._timed.append((start, end))
        return output

    def _run(self, kind: _BatchKind, batch: Batch, sums: Sums) -> StepOutput:
        """Take a step after warmup: replay its graph if there is one."""
        captured = self._captured.get(kind)
        if captured is None:
            return self._run_eagerly(self._step_for(kind), batch, sums)
        captured.images.copy_(batch.images)
        captured.targets.copy_(batch.targets)
        first, *others = captured.graphs
        first.replay()
        for graph in others:
            self._step.average_gradients()
            graph.replay()
        return captured.output

    def _run_eagerly(self, step: TrainStep, batch: Batch, sums: Sums) -> StepOutput:
        """Take a step without a graph, but on the capture stream.

        Libraries allocate workspaces per stream.
        """
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            output = step(batch, self._lr, sums)
        current.wait_stream(self._stream)
        return output

    def _prepare(self, kind: _BatchKind, batch: Batch, sums: Sums) -> None:
        """Compile the step for this kind of batch if that is worthwhile; otherwise capture it."""
        if self._is_compiling_worthwhile and self._has_room_for_compiled(kind):
            network = self._compile_for(batch.images.shape)
            if network is not None:
                self._compiled[kind.num_images] = replace(self._step, model=network)
                self._num_warmups[kind] = 0  # it warms up again
                return
            # Another size would fail as well.
            self._can_compile = False
            self._is_compiling_worthwhile = False
        if self._can_capture:
            self._can_capture = self._has_memory_for_capture()
        if self._can_capture:
            self._captured[kind] = self._capture(self._step_for(kind), batch, sums)

    def _has_room_for_compiled(self, kind: _BatchKind) -> bool:
        return kind.num_images not in self._compiled and len(self._compiled) < MAX_COMPILED

    def _has_memory_for_capture(self) -> bool:
        """Return whether a graph fits into memory, judged by the eager steps.

        This is asked first because a capture that fails cannot be undone: it would leave PyTorch in
        capture mode.
        """
        torch.cuda.empty_cache()  # as the capture does
        free, total = torch.cuda.mem_get_info(self._device)
        available = min(free, MAX_MEMORY_FRACTION * total)
        return torch.cuda.max_memory_allocated(self._device) <= available

    def _capture(self, step: TrainStep, batch: Batch, sums: Sums) -> _CapturedStep:
        """Return the step, captured but not executed."""
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
        return _CapturedStep(graphs, static.images, static.targets, output)

    def _decide_to_compile(self) -> None:
        """Compile from here on if the slowest process has long to train; collective."""
        step_s = 0.0
        if self._timed:
            _, last_end = self._timed[-1]
            last_end.synchronize()  # ended some steps ago
            step_s = statistics.median(start.elapsed_time(end) for start, end in self._timed) / 1e3
        slowest_s = self._step.world.max(torch.tensor(step_s, device=self._device))
        if self._can_compile and slowest_s.item() * self.remaining_steps >= COMPILING_PAYS_S:
            self._is_compiling_worthwhile = True
            self._drop_captured()
