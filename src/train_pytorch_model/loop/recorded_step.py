"""Training steps that a GPU plays back: one call for the thousand operations of a step.

A GPU computes the operations of a small batch faster than Python can name them: with a ResNet-50 and 16
images of 224 px, an H100 was busy for a fifth of each step. So a step is recorded as a CUDA graph when it has
been taken a few times, and played back from then on, which takes 0.1 ms of the processor instead of 25.

What is left to compute is then known. Where it is long, PyTorch compiles the network, which takes a minute or
two and saves a quarter of every step, and the step is recorded anew; where that fails, it goes on as it was.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from train_pytorch_model.data.loader import Batch
from train_pytorch_model.distributed import World
from train_pytorch_model.loop.metrics import Sums
from train_pytorch_model.loop.passes import TrainStep

WARMUP_STEPS = 3  # of each size, before it is recorded: libraries choose their algorithms, and take memory
MAX_MEMORY_SHARE = 0.4  # of the device: what a recording computes in is no longer there for other steps
TIMED_STEPS = 10
COMPILING_PAYS_S = 15 * 60.0  # of computing: saves some four minutes, for two in which it compiles
MAX_COMPILED = 2  # sizes of steps: an epoch has two; where images turn out unreadable, the next has others


def can_be_recorded(network: nn.Module) -> bool:
    """False for a network that recomputes parts of itself in the backward pass, its random numbers restored.

    That is DenseNet with `memory_efficient`. No other network of ours asks the GPU for anything on its way.
    """
    return not any(getattr(module, "memory_efficient", False) for module in network.modules())


@dataclass(frozen=True)
class _Recording:
    """A step of a number of images, and where it reads and writes."""

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
        self,
        step: TrainStep,
        steps_left: Callable[[], int],
        compiled: Callable[[Sequence[int]], nn.Module | None],
    ) -> None:
        """`compiled` gives the network compiled for images of a shape, or None if that fails."""
        device = step.world.device
        self._step, self._steps_left, self._compiled = step, steps_left, compiled
        self._lr = torch.zeros((), device=device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._image_size = torch.Size()
        """(H, W) of the images in this part of the training; its steps are told by the number of images."""
        self._taken: Counter[int] = Counter()
        self._recordings: dict[int, _Recording] = {}
        self._can_record = can_be_recorded(step.model)
        self._can_compile, self._is_long = True, False
        self._steps: dict[int, TrainStep] = {}  # where they were compiled
        self._timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] | None = []
        """Around the first steps after the warmup; None when they have told what they should."""
        torch.cuda.reset_peak_memory_stats(device)  # of trials that were larger

    @property
    def world(self) -> World:
        return self._step.world

    def __call__(self, batch: Batch, lr: float, sums: Sums) -> Tensor:
        """The sum of the losses, detached and not waited for; the next step overwrites it."""
        self._lr.fill_(lr)
        if batch.images.shape[2:] != self._image_size:
            self._begin_with(batch.images.shape[2:])
        size = len(batch.targets)
        if size != batch.global_count:
            return self._compute(self._step, batch, sums)
        if self._taken[size] >= WARMUP_STEPS and size not in self._recordings:
            self._prepare(batch, sums)
        if self._taken[size] < WARMUP_STEPS:
            self._taken[size] += 1
            return self._compute(self._steps.get(size, self._step), batch, sums)
        return self._take_timed(lambda: self._take(batch, sums))

    def _begin_with(self, image_size: torch.Size) -> None:
        """Forget the steps on images of another size: they do not come back."""
        self._image_size = image_size
        self._taken.clear()
        self._steps.clear()
        self._is_long, self._timed = False, []
        self._drop_recordings()

    def _drop_recordings(self) -> None:
        if self._recordings:
            torch.cuda.synchronize(self._step.world.device)  # what is still played back is dropped
            self._recordings.clear()

    def _take(self, batch: Batch, sums: Sums) -> Tensor:
        """After the warmup."""
        recording = self._recordings.get(len(batch.targets))
        if recording is None:
            return self._compute(self._steps.get(len(batch.targets), self._step), batch, sums)
        recording.images.copy_(batch.images)
        recording.targets.copy_(batch.targets)
        recording.graph.replay()
        return recording.loss_sum

    def _compute(self, step: TrainStep, batch: Batch, sums: Sums) -> Tensor:
        """On the stream that will record: libraries keep their workspace by stream."""
        current = torch.cuda.current_stream(self._step.world.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            loss_sum = step(batch, self._lr, sums)
        current.wait_stream(self._stream)
        return loss_sum

    def _prepare(self, batch: Batch, sums: Sums) -> None:
        """Compile the step of such a batch, where the training is long, or record it."""
        size = len(batch.targets)
        if self._is_long and size not in self._steps and len(self._steps) < MAX_COMPILED:
            network = self._compiled(batch.images.shape)
            if network is None:
                self._can_compile = self._is_long = False  # another size would fail as well
            else:
                self._steps[size] = replace(self._step, model=network)
                self._taken[size] = 0  # it warms up once more
                return
        if self._can_record:
            self._record(batch, sums)

    def _record(self, batch: Batch, sums: Sums) -> None:
        """Record the step of such a batch, which is not taken yet, unless that takes too much memory.

        A recording that fails could not be taken back: PyTorch would be left in the midst of it. So there has
        to be room.
        """
        device, size = self._step.world.device, len(batch.targets)
        torch.cuda.empty_cache()  # as the recording does
        free, total = torch.cuda.mem_get_info(device)
        needed = torch.cuda.max_memory_allocated(device)
        if needed > min(free, MAX_MEMORY_SHARE * total):
            self._can_record = False
            return
        graph = torch.cuda.CUDAGraph()
        static = replace(batch, images=batch.images.clone(), targets=batch.targets.clone())
        # One pool of memory for all: nothing in it is needed from one step to the next.
        pool = next((recording.graph.pool() for recording in self._recordings.values()), None)
        with torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local"):
            loss_sum = self._steps.get(size, self._step)(static, self._lr, sums)
        self._recordings[size] = _Recording(graph, static.images, static.targets, loss_sum)

    def _take_timed(self, take: Callable[[], Tensor]) -> Tensor:
        """Take a step; the first ones tell how long the training is, once they are over on the GPU."""
        if self._timed is None:
            return take()
        if len(self._timed) < TIMED_STEPS:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            loss_sum = take()
            end.record()
            self._timed.append((start, end))
            return loss_sum
        loss_sum = take()
        if self._timed[-1][1].query():  # type: ignore[no-untyped-call]
            step_s = statistics.median(start.elapsed_time(end) for start, end in self._timed) / 1e3
            self._timed = None
            if self._can_compile and step_s * self._steps_left() >= COMPILING_PAYS_S:
                self._is_long = True
                self._drop_recordings()
        return loss_sum
