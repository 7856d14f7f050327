"""Run a story in this process, in those that a launcher has started, or in one per GPU."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from train_pytorch_model.distributed.agreed_inputs import open_together
from train_pytorch_model.distributed.launcher import start_workers
from train_pytorch_model.distributed.world import World, join_world
from train_pytorch_model.inputs.opening import OpenedInputs, ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.cores import CoreTimes, short_switch_interval
from train_pytorch_model.machine.launch import LAUNCHER, Worker, decide
from train_pytorch_model.machine.system import keep_freed_memory

T = TypeVar("T", OpenedInputs, ScoringInputs)


def run_story(
    story: Callable[[T, World], None],
    open_inputs: Callable[[], T | None],
    opened: T | None,
    arguments: Sequence[str],
    options: Mapping[str, str],
    began: CoreTimes | None,
) -> None:
    """Run a story on its inputs, or start one worker per GPU with `arguments`, the verb first.

    The inputs are already `opened` in a process that no launcher has started; otherwise the first rank of
    each host opens them. All ranks must have the same `options`; this process `began` then. If workers fail,
    it exits with their status. Raises `LaunchError`, and whatever the story raises.
    """
    part = decide(os.environ, torch.cuda.device_count())
    if part.note:
        logger.info(part.note)
    if LAUNCHER in os.environ:  # which needs no file with this process's error, and fails if /tmp is full
        os.environ.pop("TORCHELASTIC_ERROR_FILE", None)
    if not isinstance(part, Worker):
        if opened is not None or open_inputs() is not None:
            logger.info(part.torchrun_line(arguments))
            if status := start_workers(part, arguments):
                sys.exit(status)
        return

    @record  # without it, torchrun shows no traceback of an exception
    def work() -> None:
        keep_freed_memory()
        if part.warning:
            logger.warning(part.warning)
        if part.size > 1:
            os.environ.update(part.variables())
        with short_switch_interval(), join_world(began) as world:
            inputs = open_together(open_inputs, options, world) if world.size > 1 else opened
            if inputs is not None:
                story(inputs, world)

    work()
