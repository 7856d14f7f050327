"""Threads that follow what other processes leave of the processors."""

import time

import torch

from train_pytorch_model.config.wording import counted
from train_pytorch_model.distributed.world import World
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.threads import choose_threads

THREADS_EVERY_S = 30.0  # a shorter disturbance costs less than other bits are worth


class ThreadWatch:
    """The number of threads follows what other processes leave of the cores, between two steps."""

    def __init__(self, world: World) -> None:
        self._cores = world.cores
        self._since = None if world.threads.is_fixed else CoreTimes.now()

    def after_step(self) -> None:
        """Every half minute: take as many threads for the next steps as there were free cores in
        it.
        """
        if self._since is None or time.monotonic() - self._since.at_s < THREADS_EVERY_S:
            return
        since, self._since = self._since, CoreTimes.now()
        threads = choose_threads(self._cores, since, self._since)
        if threads.count != torch.get_num_threads():
            torch.set_num_threads(threads.count)
            logger.info(
                f"From here on {counted(threads.count, 'thread', 'threads')}: {threads.reason}."
            )
