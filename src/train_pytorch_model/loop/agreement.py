"""What all processes decide together after each step: to continue, save, stop or roll back.

Each process reports three numbers, and all act on the maximum of each. On a CPU the answer is for the step
just taken. On a GPU, reading it at once would stall the device, so the answer is for the previous step. All
processes get the same one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.loop.read_later import read_later


@dataclass(frozen=True)
class Agreed:
    """The outcome of an exchange, the same on all processes."""

    is_finite: bool = True
    """Whether the step's loss was finite on all processes."""
    is_due: bool = False
    """Whether a checkpoint is due."""
    stop: int = 0
    """The signal that asks the run to stop, 0 for none."""


class Agreement:
    """Exchanges three numbers between the processes after each step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._late: Callable[[], Agreed] = Agreed

    def exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Agreed:
        """Exchange a step's loss and this process's requests; on a GPU, return the previous step's answer.

        If that answer leads to a save, this step's loss is checked as well: the saved weights include it.
        """
        now = self._exchange(loss_sum.detach(), is_due, stop)
        if self._world.device.type != "cuda":
            return now()
        before, self._late = self._late, now
        answer = before()
        if answer.is_finite and not (answer.is_due or answer.stop):
            return answer
        self._late = Agreed  # this step is rolled back or saved with the previous one
        # Saving waits for the device anyway.
        return replace(answer, is_finite=answer.is_finite and now().is_finite)

    def finish(self) -> Agreed:
        """Return the answer that is still pending at the end of an epoch."""
        before, self._late = self._late, Agreed
        return before()

    def _exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Callable[[], Agreed]:
        if self._world.size == 1:  # nothing to communicate
            loss = read_later(loss_sum)
            return lambda: Agreed(math.isfinite(*loss()), is_due, stop)
        requests = torch.tensor([0.0, float(is_due), float(stop)], device="cpu")
        if self._world.device.type == "cuda":
            requests = requests.pin_memory().to(self._world.device, non_blocking=True)
        requests[0] = (~torch.isfinite(loss_sum)).float()
        maxima = read_later(self._world.max(requests))

        def read() -> Agreed:
            not_finite, some_due, last_stop = maxima()
            return Agreed(not_finite == 0, some_due > 0, int(last_stop))

        return read
