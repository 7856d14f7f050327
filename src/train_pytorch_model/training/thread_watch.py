"""The number of PyTorch's threads, adjusted during training."""

import time

import torch

from train_pytorch_model.config.wording import counted
from train_pytorch_model.distributed.world import World
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.threads import choose_threads

THREADS_EVERY_S = 30.0  # a shorter disturbance costs less than other bits are worth


class ThreadWatch:
    """Adjusts PyTorch's number of threads to the cores that other processes leave free.

    It does so between two steps, and only if the user has not fixed the number.
    """

    def __init__(self, world: World) -> None:
        self._cores = world.cores
        self._since = None if world.threads.is_fixed else CoreTimes.now()

    def after_step(self) -> None:
        """Every half minute, compute with as many threads as there were free cores in it."""
        since = self._since
        if since is None or time.monotonic() - since.at_s < THREADS_EVERY_S:
            return
        now = CoreTimes.now()
        self._since = now
        threads = choose_threads(self._cores, since, now)
        if threads.count != torch.get_num_threads():
            torch.set_num_threads(threads.count)
            logger.info(
                f"From here on {counted(threads.count, 'thread', 'threads')}: {threads.reason}."
            )
