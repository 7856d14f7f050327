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
from train_pytorch_model.training.out_of_memory import is_out_of_memory, nothing_fits
from train_pytorch_model.training.precision import Precision
from train_pytorch_model.training.step import FlatGradients

MAX_AVERAGING = 0.1  # of the time of an eager pass; replaying and compiling save more


@dataclass
class Trials:
    """Trial passes of a model, on black images of the size in `framing`, before the first training
    step."""

    model: nn.Module
    network: nn.Module  # the part of `model` that the `optimizer` trains
    optimizer: Optimizer
    framing: Framing
    precision: Precision
    world: World

    def fitting_micro_batch(
        self, batch_size: int, at_most: int | None, min_local_batch: int
    ) -> int | None:
        """Images of a batch that every process's memory holds; None: all.

        Raises `ModuleOutOfMemoryError`.
        """
        largest = max(min_local_batch, min(batch_size, at_most or batch_size))
        if self.world.device.type == "cuda" or at_most:
            with self._restoring():
                trial = partial(self._pass, self.model)
                largest = largest_that_fits(trial, largest, min_local_batch, self.world)
        if largest >= batch_size:
            return None
        parts = (
            f"a step of {batch_size} accumulates the gradients of {math.ceil(batch_size / largest)}"
        )
        paragraph(f"{largest} images at once: {parts} micro-batches", "Memory")
        return largest

    def settle_buckets(self, replicated: nn.Module, num_images: int) -> None:
        """Run two backward passes of the model in DDP, which rebuilds its buckets after the first
        one.

        It sums in bucket order: without this, a resumed run's first step would have another order.
        """
        with self._restoring():
            for _ in range(2):
                self._pass(replicated, num_images)

    def average_soon(self, gradients: FlatGradients, num_images: int) -> bool:
        """Whether averaging gradients at once takes little: DDP does it while computing them.

        Collective.
        """
        device, world = self.world.device, self.world

        def seconds_of(call: Callable[[], None]) -> float:
            torch.cuda.synchronize(device)
            started_at = time.perf_counter()
            call()
            torch.cuda.synchronize(device)
            return time.perf_counter() - started_at

        with self._restoring():
            for _ in range(2):  # the first time, libraries choose algorithms and connect
                computed_s = seconds_of(lambda: self._pass(self.model, num_images))
                world.average_(gradients.values)  # all processes have arrived
                averaged_s = seconds_of(lambda: world.average_(gradients.values))
        computed_s, averaged_s = world.max(
            torch.tensor([computed_s, averaged_s], device=device)
        ).tolist()
        is_soon = bool(averaged_s <= MAX_AVERAGING * computed_s)
        how = (
            "at once, between CUDA graphs" if is_soon else "while they are computed, by eager steps"
        )
        took = f"all take {1e3 * averaged_s:.1f} ms, computing {1e3 * computed_s:.1f} ms"
        paragraph(f"{how}: {took}", "Averaging")
        return is_soon

    def compiled(self, shape: Sequence[int]) -> nn.Module | None:
        """The model, compiled for steps on images (B, 3, H, W) of a shape; None if that fails."""
        paragraph(
            "the network, which takes a minute or two and saves a quarter of each step", "Compiling"
        )
        model = cast(nn.Module, torch.compile(self.model, dynamic=False))
        # Hide warnings meant for the network's authors, and keep the RNG state for the next step.
        rng_state_kept = torch.random.fork_rng([self.world.device.index])
        try:
            with self._restoring(), warnings.catch_warnings(action="ignore"), rng_state_kept:
                self._pass(model, shape[0], shape[2:])
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

    def _pass(self, model: nn.Module, num_images: int, size: Sequence[int] = ()) -> None:
        """Forward and backward pass on images of a size (H, W), by default the largest."""
        shape = (num_images, 3, *(size or (self.framing.height, self.framing.width)))
        images = torch.zeros(shape, dtype=torch.uint8, device=self.world.device)
        with self.precision.autocast(self.world.device):
            logits = model(images.contiguous(memory_format=torch.channels_last))
        logits.float().sum().backward()
        self.optimizer.zero_grad(set_to_none=True)


def largest_that_fits(trial: Callable[[int], None], largest: int, least: int, world: World) -> int:
    """`largest` images, halved until they fit, down to `least`; the same on all processes.

    `trial` computes that many images in this process alone, without communication: a process that
    runs out of memory would leave the others waiting. Raises `ModuleOutOfMemoryError`.
    """
    images = largest
    while True:
        try:
            trial(images)
            break
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if images <= least:
                raise nothing_fits(images) from error
        torch.cuda.empty_cache()  # only now: the error kept the tensors alive
        images = max(least, images // 2)
    # The minimum over all processes, as the maximum of the negatives.
    return -int(world.max(torch.tensor([-images], dtype=torch.int64, device=world.device)).item())
