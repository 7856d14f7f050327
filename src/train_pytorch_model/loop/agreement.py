"""What all processes decide alike after each step: to go on, to save, to stop, or to go back.

Each says what it has found, and all act on the largest of each number. On a CPU the answer is the step's own.
A GPU must not be waited for, so there it is that of the step before: on all processes alike, which is what
counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from train_pytorch_model.distributed import World
from train_pytorch_model.loop.read_later import read_later


@dataclass(frozen=True)
class Agreed:
    """What at least one process has said."""

    is_finite: bool = True
    """The loss of the step was, on all processes."""
    is_due: bool = False
    """It is time for a checkpoint."""
    stop: int = 0
    """The signal that asks for the end, 0 for none."""


class Agreement:
    """Exchanges three numbers a step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._late: Callable[[], Agreed] = Agreed

    def exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Agreed:
        """Of a step's loss and this process's wishes; on a GPU, the answer of the step before.

        If that one ends in saving, this step's loss has a say as well: what is saved has its weights.
        """
        now = self._exchange(loss_sum.detach(), is_due, stop)
        if self._world.device.type != "cuda":
            return now()
        before, self._late = self._late, now
        answer = before()
        if answer.is_finite and not (answer.is_due or answer.stop):
            return answer
        self._late = Agreed  # this step is taken back or saved with the one before
        # To save, the device is waited for anyway.
        return replace(answer, is_finite=answer.is_finite and now().is_finite)

    def finish(self) -> Agreed:
        """The answer that is still on its way, at the end of an epoch."""
        before, self._late = self._late, Agreed
        return before()

    def _exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Callable[[], Agreed]:
        if self._world.size == 1:  # nobody has to be told
            loss = read_later(loss_sum)
            return lambda: Agreed(math.isfinite(*loss()), is_due, stop)
        said = torch.tensor([0.0, float(is_due), float(stop)], device="cpu")
        if self._world.device.type == "cuda":
            said = said.pin_memory().to(self._world.device, non_blocking=True)
        said[0] = (~torch.isfinite(loss_sum)).float()
        maxima = read_later(self._world.max(said))

        def agreed() -> Agreed:
            not_finite, some_due, last_stop = maxima()
            return Agreed(not_finite == 0, some_due > 0, int(last_stop))

        return agreed
