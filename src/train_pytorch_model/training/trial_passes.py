"""Trial passes before the first step: what fits into memory, and what is fast."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import nn
from torch.optim import Optimizer

from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.machine.console import logger, paragraph
from train_pytorch_model.networks import batch_norms
from train_pytorch_model.training.flat_gradients import FlatGradients
from train_pytorch_model.training.out_of_memory import is_out_of_memory, nothing_fits
from train_pytorch_model.training.precision import Precision

# Of the time of an eager pass: replaying and compiling save more than averaging may take.
MAX_AVERAGING_FRACTION = 0.1


@dataclass
class TrialPasses:
    """Forward and backward passes of a model on black images, before the first training step.

    They leave the network as it was.
    """

    model: nn.Module
    network: nn.Module  # the part of `model` that the `optimizer` trains
    optimizer: Optimizer
    framing: Framing  # of the largest images
    precision: Precision
    world: World

    def find_micro_batch(
        self, batch_size: int, max_micro_batch: int | None, min_local_batch: int
    ) -> int | None:
        """Return how many images of a batch every process's memory holds; None if all of them.

        With `max_micro_batch` there are no more than that. Raises `ModuleOutOfMemoryError`.
        """
        micro_batch = max(min_local_batch, min(batch_size, max_micro_batch or batch_size))
        if self.world.device.type == "cuda" or max_micro_batch:
            with self._restoring():
                trial = partial(self._pass, self.model)
                micro_batch = find_largest_batch(trial, micro_batch, min_local_batch, self.world)
        if micro_batch >= batch_size:
            return None
        num_parts = math.ceil(batch_size / micro_batch)
        paragraph(
            f"{micro_batch} images at once: a step of {batch_size} accumulates the gradients of"
            f" {num_parts} micro-batches",
            "Memory",
        )
        return micro_batch

    def settle_buckets(self, replicated: nn.Module, num_images: int) -> None:
        """Run two backward passes of the model in DDP, which rebuilds its buckets after the first.

        DDP sums gradients in the order of its buckets: without this, the first step of a resumed
        run would have another order.
        """
        with self._restoring():
            for _ in range(2):
                self._pass(replicated, num_images)

    def is_averaging_fast(self, gradients: FlatGradients, num_images: int) -> bool:
        """Return whether averaging all gradients takes little beside computing them.

        If not, DDP is better, which averages some while it computes others. Collective.
        """
        with self._restoring():
            for _ in range(2):  # the first time, libraries choose algorithms and connect
                computed_s = self._seconds_of(lambda: self._pass(self.model, num_images))
                self.world.average_(gradients.values)  # all processes have arrived
                averaged_s = self._seconds_of(lambda: self.world.average_(gradients.values))
        slowest = self.world.max(torch.tensor([computed_s, averaged_s], device=self.world.device))
        computed_s, averaged_s = slowest.tolist()
        is_fast = bool(averaged_s <= MAX_AVERAGING_FRACTION * computed_s)
        how = "while they are computed, by eager steps"
        if is_fast:
            how = "at once, between CUDA graphs"
        paragraph(
            f"{how}: all take {1e3 * averaged_s:.1f} ms, computing {1e3 * computed_s:.1f} ms",
            "Averaging",
        )
        return is_fast

    def compile(self, shape: Sequence[int]) -> nn.Module | None:
        """Return the model compiled for images (B, 3, H, W) of a shape; None if that fails."""
        paragraph(
            "the network, which takes a minute or two and saves a quarter of each step", "Compiling"
        )
        model = cast(nn.Module, torch.compile(self.model, dynamic=False))
        num_images, _, height, width = shape
        # Hide warnings meant for the network's authors, and keep the RNG state for the next step.
        without_warnings = warnings.catch_warnings(action="ignore")
        rng_state_kept = torch.random.fork_rng([self.world.device.index])
        try:
            with self._restoring(), without_warnings, rng_state_kept:
                self._pass(model, num_images, (height, width))
        except Exception as error:  # no compiler on this machine, or a network it cannot compile
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0][:160]
            logger.warning(f"The network cannot be compiled ({reason}). It trains uncompiled.")
            return None
        return model

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """Restore the weights and statistics at the end of a `with` in which the network trains."""
        before = {name: value.clone() for name, value in self.network.state_dict().items()}
        batch_norms.set_training_mode(self.network)
        try:
            yield
        finally:
            self.network.load_state_dict(before)
            self.optimizer.zero_grad(set_to_none=True)

    def _pass(self, model: nn.Module, num_images: int, size: tuple[int, int] | None = None) -> None:
        """Run a forward and a backward pass on images of a size (H, W), by default the largest."""
        height, width = size or (self.framing.height, self.framing.width)
        images = torch.zeros(
            (num_images, 3, height, width), dtype=torch.uint8, device=self.world.device
        )
        with self.precision.autocast(self.world.device):
            logits = model(images.contiguous(memory_format=torch.channels_last))
        logits.float().sum().backward()
        self.optimizer.zero_grad(set_to_none=True)

    def _seconds_of(self, call: Callable[[], None]) -> float:
        """Return how long the device takes for a call."""
        torch.cuda.synchronize(self.world.device)
        started_at = time.perf_counter()
        call()
        torch.cuda.synchronize(self.world.device)
        return time.perf_counter() - started_at


def find_largest_batch(
    trial: Callable[[int], None], largest: int, smallest: int, world: World
) -> int:
    """Return `largest`, halved until as many images fit, down to `smallest`; the same on all ranks.

    `trial` computes that many images in this process alone, without communication: a process that
    runs out of memory would leave the others waiting. Raises `ModuleOutOfMemoryError`.
    """
    num_images = largest
    while True:
        try:
            trial(num_images)
            break
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if num_images <= smallest:
                raise nothing_fits(num_images) from error
        torch.cuda.empty_cache()  # only now: the error kept the tensors alive
        num_images = max(smallest, num_images // 2)
    # The minimum over all processes, as the maximum of the negatives.
    negative = torch.tensor([-num_images], dtype=torch.int64, device=world.device)
    return -int(world.max(negative).item())
