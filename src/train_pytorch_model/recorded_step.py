"""Training steps that a GPU plays back: one call for the thousand operations of a step.

A GPU computes the operations of a small batch faster than Python can name them: of a ResNet-50 and 16 images
at 224 px, an H100 was at work for a fifth of each step. So a step is recorded as a CUDA graph when it has
been taken a few times, and played back from then on, which takes 0.1 ms of the processor instead of 25.

What is left to compute is then known. Where it is long, PyTorch compiles the network, which takes a minute
and saves a quarter of every step; where that fails, the training goes on as it was.
"""

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from train_pytorch_model.data import Batch
from train_pytorch_model.distributed import World
from train_pytorch_model.loop import TrainStep
from train_pytorch_model.metrics import Sums

WARMUP_STEPS = 3  # of each size, before it is recorded: libraries choose their algorithms, and take memory
MAX_MEMORY_SHARE = 0.4  # of the device: what a recording computes in is no longer there for other steps
TIMED_STEPS = 10
COMPILING_PAYS_S = 15 * 60.0  # of computing: saves some four minutes, for two in which it compiles


@dataclass(frozen=True)
class _Recording:
    """A step of so many images, and where it reads and writes."""

    graph: torch.cuda.CUDAGraph
    images: Tensor
    """(B, 3, H, W), uint8, channels last."""
    targets: Tensor
    """(B,), int64."""
    loss_sum: Tensor


class RecordedStep:
    """A `TrainStep` of a process alone on its GPU. What it computes is the same.

    Steps on whole batches are recorded; what is rare, such as a batch with images that could not be read, is
    computed as it comes. Weights, momentum, statistics and sums have to stay where they are in memory.
    """

    def __init__(
        self, step: TrainStep, steps_left: Callable[[], int], compiled: Callable[[int], nn.Module | None]
    ) -> None:
        """`compiled` gives the network compiled for so many images at once, or None if that fails."""
        self._step, self._steps_left, self._compiled = step, steps_left, compiled
        self._lr = torch.zeros((), device=step.world.device)
        self._stream = torch.cuda.Stream(step.world.device)  # type: ignore[no-untyped-call]
        self._is_long = False
        self._steps: dict[int, TrainStep] = {}  # by size, where it was tried to compile them
        self._taken: Counter[int] = Counter()
        self._recordings: dict[int, _Recording] = {}
        self._can_record = True
        self._timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] | None = []
        """Around the first steps that were played back; None when they have told what they should."""

    @property
    def world(self) -> World:
        return self._step.world

    def __call__(self, batch: Batch, lr: float, sums: Sums) -> Tensor:
        """The sum of the losses, detached and not waited for; the next step overwrites it."""
        self._lr.fill_(lr)
        size = len(batch.targets)
        is_whole = size == batch.global_count
        if is_whole and self._taken[size] >= WARMUP_STEPS and size not in self._recordings:
            self._prepare(batch, sums)
        recording = self._recordings.get(size) if is_whole else None
        if recording is None:
            return self._compute(self._steps.get(size, self._step) if is_whole else self._step, batch, sums)
        recording.images.copy_(batch.images)
        recording.targets.copy_(batch.targets)
        if self._timed is not None and len(self._timed) < TIMED_STEPS:
            self._timed.append(_timed(recording.graph.replay))
        else:
            recording.graph.replay()
            self._compile_if_it_pays()
        return recording.loss_sum

    def _compute(self, step: TrainStep, batch: Batch, sums: Sums) -> Tensor:
        """On the stream that will record, where the libraries' memory is kept for it."""
        current = torch.cuda.current_stream(self._step.world.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            loss_sum = step(batch, self._lr, sums)
        current.wait_stream(self._stream)
        self._taken[len(batch.targets)] += 1
        return loss_sum

    def _prepare(self, batch: Batch, sums: Sums) -> None:
        """Compile the step of such a batch, where the training is long, or record it."""
        size = len(batch.targets)
        if self._is_long and size not in self._steps:
            network = self._compiled(size)
            self._steps[size] = self._step if network is None else replace(self._step, model=network)
            self._taken[size] = 0  # it warms up once more
        elif self._can_record:
            try:
                self._record(batch, sums)
            except RuntimeError:  # no memory, or a network that asks the GPU for something on its way
                self._can_record = False
                self._recordings.clear()
                torch.cuda.empty_cache()

    def _record(self, batch: Batch, sums: Sums) -> None:
        """Record the step of such a batch, which is not taken yet, unless that takes too much memory."""
        device, size = self._step.world.device, len(batch.targets)
        _, total = torch.cuda.mem_get_info(device)
        if torch.cuda.max_memory_allocated(device) > MAX_MEMORY_SHARE * total:
            self._can_record = False
            return
        graph = torch.cuda.CUDAGraph()
        static = replace(batch, images=batch.images.clone(), targets=batch.targets.clone())
        # One pool of memory for all: nothing in it is needed from one step to the next.
        pool = next((recording.graph.pool() for recording in self._recordings.values()), None)
        with torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local"):
            loss_sum = self._steps.get(size, self._step)(static, self._lr, sums)
        self._recordings[size] = _Recording(graph, static.images, static.targets, loss_sum)

    def _compile_if_it_pays(self) -> None:
        """Decided once, as soon as the steps that were timed are over on the GPU."""
        if self._timed is None or not self._timed[-1][1].query():  # type: ignore[no-untyped-call]
            return
        step_s = statistics.median(start.elapsed_time(end) for start, end in self._timed) / 1e3
        self._timed = None
        if step_s * self._steps_left() >= COMPILING_PAYS_S:
            self._is_long = True
            torch.cuda.synchronize(self._step.world.device)  # what is still played back is dropped
            self._recordings.clear()


def _timed(replay: Callable[[], None]) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    replay()
    end.record()
    return start, end
