"""What all processes decide alike after each step: to go on, to save, to stop, or to go back.

Each says what it has found, and all act on the largest of each number. On a CPU the answer is the step's own.
A GPU must not be waited for, so there it is that of the step before: on all processes alike, which is what
counts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from train_pytorch_model.distributed import World


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
        self._late: tuple[Tensor, torch.cuda.Event] | None = None

    def exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Agreed:
        """Of a step's loss and this process's wishes; on a GPU, the answer of the step before."""
        said = torch.tensor([0.0, float(is_due), float(stop)], device="cpu")
        if self._world.device.type != "cuda":
            if self._world.size == 1:
                return Agreed(bool(torch.isfinite(loss_sum)), is_due, stop)
            said[0] = (~torch.isfinite(loss_sum.detach())).float()
            return _agreed(self._world.max(said))
        said = said.pin_memory().to(self._world.device, non_blocking=True)
        said[0] = (~torch.isfinite(loss_sum.detach())).float()
        answer = torch.empty(3, pin_memory=True)
        answer.copy_(self._world.max(said), non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        before, self._late = self._late, (answer, event)
        return _waited(before)

    def finish(self) -> Agreed:
        """The answer that is still on its way, at the end of an epoch."""
        before, self._late = self._late, None
        return _waited(before)


def _waited(late: tuple[Tensor, torch.cuda.Event] | None) -> Agreed:
    if late is None:
        return Agreed()
    answer, event = late
    event.synchronize()  # of the step before: it has been queued behind a whole step
    return _agreed(answer)


def _agreed(maxima: Tensor) -> Agreed:
    not_finite, is_due, stop = maxima.tolist()
    return Agreed(not_finite == 0, is_due > 0, int(stop))
