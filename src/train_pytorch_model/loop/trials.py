"""Trial passes that leave the network unchanged: to find what fits, to compile, and to settle DDP buckets."""

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import nn
from torch.optim import Optimizer

from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.loop.memory_probe import largest_that_fits
from train_pytorch_model.loop.precision import Precision
from train_pytorch_model.loop.step import FlatGradients
from train_pytorch_model.machine.console import logger, paragraph
from train_pytorch_model.networks.batch_norms import set_training_mode

MAX_AVERAGING = 0.1  # of the time of an eager pass; replaying and compiling save more


class Trials:
    """Trial passes of a model, on black images of the size in `framing`, before the first training step."""

    def __init__(
        self,
        model: nn.Module,
        network: nn.Module,
        optimizer: Optimizer,
        framing: Framing,
        precision: Precision,
        world: World,
    ) -> None:
        """`network` is the part of `model` that the `optimizer` trains."""
        self._model, self._network, self._optimizer = model, network, optimizer
        self._framing, self._precision, self._world = framing, precision, world

    def fitting_micro_batch(self, batch_size: int, at_most: int | None, min_local_batch: int) -> int | None:
        """How many images of a batch fit into the memory of every process at once; None if all do.

        Raises `ModuleOutOfMemoryError`.
        """
        largest = max(min_local_batch, min(batch_size, at_most or batch_size))
        if self._world.device.type == "cuda" or at_most:
            with self._restoring():
                largest = largest_that_fits(
                    lambda images: self._pass(self._model, images), largest, min_local_batch, self._world
                )
        if largest >= batch_size:
            return None
        parts = math.ceil(batch_size / largest)
        accumulated = f"a step of {batch_size} accumulates the gradients of {parts} micro-batches"
        paragraph(f"{largest} images at once: {accumulated}", "Memory")
        return largest

    def settle_buckets(self, replicated: nn.Module, num_images: int) -> None:
        """Run two backward passes of the model in DDP.

        DDP rebuilds its buckets after the first one, and sums in bucket order: without this, a resumed run
        would take its first step in another order than an uninterrupted one.
        """
        with self._restoring():
            for _ in range(2):
                self._pass(replicated, num_images)

    def average_soon(self, gradients: FlatGradients, num_images: int) -> bool:
        """Whether averaging all gradients at once takes little beside computing them; collective, on GPUs.

        DDP averages while it computes, which is better over a slow network.
        """
        device, world = self._world.device, self._world
        with self._restoring():
            for _ in range(2):  # the first time, libraries choose algorithms and connect
                torch.cuda.synchronize(device)
                started_at = time.perf_counter()
                self._pass(self._model, num_images)
                torch.cuda.synchronize(device)
                computed_s = time.perf_counter() - started_at
                world.average_(gradients.values)  # all processes have arrived
                torch.cuda.synchronize(device)
                started_at = time.perf_counter()
                world.average_(gradients.values)
                torch.cuda.synchronize(device)
                averaged_s = time.perf_counter() - started_at
        computed_s, averaged_s = world.max(torch.tensor([computed_s, averaged_s], device=device)).tolist()
        is_soon = bool(averaged_s <= MAX_AVERAGING * computed_s)
        how = "at once, between CUDA graphs" if is_soon else "while they are computed, by eager steps"
        paragraph(
            f"{how}: all take {1e3 * averaged_s:.1f} ms, computing {1e3 * computed_s:.1f} ms", "Averaging"
        )
        return is_soon

    def compiled(self, shape: Sequence[int]) -> nn.Module | None:
        """The model, compiled for steps on images (B, 3, H, W) of a shape; None if that fails."""
        paragraph("the network, which takes a minute or two and saves a quarter of each step", "Compiling")
        model = cast(nn.Module, torch.compile(self._model, dynamic=False))
        try:
            # Hide warnings meant for the network's authors, and keep the RNG state for the next step.
            with (
                self._restoring(),
                warnings.catch_warnings(),
                torch.random.fork_rng([self._world.device.index]),
            ):
                warnings.simplefilter("ignore")
                self._pass_of(shape, model)
        except Exception as error:  # no compiler on this machine, or a network it cannot compile
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0][:160]
            logger.warning(f"The network cannot be compiled ({reason}). It trains uncompiled.")
            return None
        return model

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """Restore the weights and statistics at the end of a `with` in which the network trains."""
        before = {name: value.clone() for name, value in self._network.state_dict().items()}
        set_training_mode(self._network)
        try:
            yield
        finally:
            self._network.load_state_dict(before)
            self._optimizer.zero_grad(set_to_none=True)

    def _pass(self, model: nn.Module, num_images: int) -> None:
        """Forward and backward pass on images of the largest size."""
        self._pass_of((num_images, 3, self._framing.height, self._framing.width), model)

    def _pass_of(self, shape: Sequence[int], model: nn.Module) -> None:
        device = self._world.device
        images = torch.zeros(tuple(shape), dtype=torch.uint8, device=device)
        with self._precision.autocast(device):
            logits = model(images.contiguous(memory_format=torch.channels_last))
        logits.float().sum().backward()
        self._optimizer.zero_grad(set_to_none=True)
