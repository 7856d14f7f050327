"""When the time of a run is up, on which all of its processes agree."""

import torch

from train_pytorch_model.distributed.world import World
from train_pytorch_model.machine.time_limit import TimeLimit


class OutOfTimeError(Exception):
    """The time is up within an epoch."""


class AgreedClock:
    """Tells a run when its time is up: one process at any step, several between epochs."""

    def __init__(self, limit: TimeLimit, world: World) -> None:
        self._limit = limit
        self._world = world

    def is_up_between_epochs(self) -> bool:
        """Return whether the time of any process is up; collective."""
        if self._world.size == 1:
            return self._limit.is_up
        is_up = torch.tensor([float(self._limit.is_up)], device=self._world.device)
        return bool(self._world.max(is_up).item())

    def check_within_epoch(self) -> None:
        """Raise `OutOfTimeError` if the time of a single process is up."""
        if self._world.size == 1 and self._limit.is_up:
            raise OutOfTimeError
