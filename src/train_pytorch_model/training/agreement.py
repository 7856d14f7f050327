"""What all processes agree on after each step: to continue, save, stop or roll back.

Each process reports three numbers, and all act on the maximum of each. On a CPU the answer is for
the step just taken. On a GPU, reading it at once would stall the device, so the answer is for the
previous step. All processes get the same one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.training.read_later import read_later


@dataclass(frozen=True)
class Agreed:
    """The outcome of an exchange, the same on all processes."""

    is_finite: bool = True  # whether the step's loss was finite on all processes
    is_due: bool = False  # whether a checkpoint is due
    stop: int = 0  # the signal that asks the run to stop, 0 for none


class Agreement:
    """Exchanges three numbers between the processes after each step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read_previous: Callable[[], Agreed] = Agreed

    def exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Agreed:
        """Exchange a step's loss and requests; on a GPU, return the answer of the step before."""
        read = self._exchange_later(loss_sum.detach(), is_due, stop)
        if self._world.device.type != "cuda":
            return read()
        read_previous = self._read_previous
        self._read_previous = read
        agreed = read_previous()
        if agreed.is_finite and not (agreed.is_due or agreed.stop):
            return agreed
        self._read_previous = Agreed  # this step is rolled back or saved with the previous one
        # What is saved includes this step, so its loss counts; saving waits for the device anyway.
        return replace(agreed, is_finite=agreed.is_finite and read().is_finite)

    def finish(self) -> Agreed:
        """Return the answer that is still pending at the end of an epoch."""
        read_previous = self._read_previous
        self._read_previous = Agreed
        return read_previous()

    def _exchange_later(self, loss_sum: Tensor, is_due: bool, stop: int) -> Callable[[], Agreed]:
        """Start the exchange, and return a function that does not wait if called a step later."""
        if self._world.size == 1:  # nothing to communicate
            read_loss = read_later(loss_sum)
            return lambda: Agreed(math.isfinite(*read_loss()), is_due, stop)
        reports = torch.tensor([0.0, float(is_due), float(stop)], device="cpu")
        if self._world.device.type == "cuda":
            reports = reports.pin_memory().to(self._world.device, non_blocking=True)
        reports[0] = (~torch.isfinite(loss_sum)).float()
        read_maxima = read_later(self._world.max(reports))

        def read() -> Agreed:
            not_finite, some_due, last_stop = read_maxima()
            return Agreed(not_finite == 0, some_due > 0, int(last_stop))

        return read
