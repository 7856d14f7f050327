"""Run a story in this process, in those that a launcher has started, or in one per GPU.

The first process of each host opens the inputs; all get those of rank 0.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.distributed.rendezvous import in_thread, join_world
from train_pytorch_model.distributed.workers import start_workers
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import TrainingError, UserError
from train_pytorch_model.formats.fingerprint import differing_options
from train_pytorch_model.inputs.opening import OpenedInputs, ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.launch import LAUNCHER, Worker, decide
from train_pytorch_model.machine.memory import keep_freed_memory
from train_pytorch_model.machine.threads import short_switch_interval

T = TypeVar("T", OpenedInputs, ScoringInputs)
POLL_S = 0.2


def run_story(
    story: Callable[[T, World], None],
    open_inputs: Callable[[], T | None],
    opened: T | None,
    arguments: Sequence[str],
    options: Mapping[str, str],
    began: CoreTimes | None,
) -> None:
    """Run a story on its inputs, or start one worker per GPU with `arguments`, the verb first.

    The inputs are already `opened` in a process that no launcher has started; otherwise the first
    rank of each host opens them. All ranks must have the same `options`; this process `began` then.
    If workers fail, it exits with their status. Raises `LaunchError`, and whatever the story
    raises.
    """
    part = decide(os.environ, torch.cuda.device_count())
    if part.note:
        logger.info(part.note)
    if (
        LAUNCHER in os.environ
    ):  # which needs no file with this process's error, and fails if /tmp is full
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


def open_together(
    open_inputs: Callable[[], T | None], options: Mapping[str, str], world: World
) -> T | None:
    """Rank 0's inputs, for all; each host's first opens them.

    Raises any rank's error, or `TrainingError`.
    """
    # In a thread, as it may take longer than the timeout of a collective: no rank waits in a single
    # one for another.
    opened: Future[T | None] = in_thread(open_inputs if world.local_rank == 0 else lambda: None)
    while not all(world.gather([opened.done()])):
        wait([opened], POLL_S)
    raised = opened.exception()
    if raised and not isinstance(raised, UserError):
        raise raised
    for error in world.gather([raised]):
        if error:
            raise error
    inputs = opened.result()
    agreed = world.broadcast(inputs)
    if agreed is None:
        return None
    if isinstance(agreed, OpenedInputs):
        model = {} if inputs is None else {"untrained_model": inputs.model.sha256}
        used = world.gather([{**options, **model}])
        differences = [
            f"rank {rank}: {option} "
            + (f"is {value}, not {mains}" if value else "has other content")
            for rank, own in enumerate(used)
            for option, mains, value in differing_options(used[0], own)
        ]
        if differences:
            raise TrainingError(
                "Not all processes were started with the command of rank"
                f" 0:{bulleted(differences)}\n"
                "Start all of them with the same one."
            )
    if world.local_size < world.size:  # images that are missing there are unreadable
        hashes = world.gather([None if inputs is None else _sha256(inputs)])
        others = [str(rank) for rank, found in enumerate(hashes) if found not in (None, hashes[0])]
        if others:
            ranks = ", ".join(others)
            logger.warning(
                f"Other images exist or are readable for rank {ranks}; those of rank 0 are used."
            )
    return agreed


def _sha256(inputs: OpenedInputs | ScoringInputs) -> str:
    """Return a hash of the images and of their rows: caches and results refer to rows."""
    given = (
        [inputs.images]
        if isinstance(inputs, ScoringInputs)
        else [inputs.training, inputs.validation]
    )
    content = b"".join(each.fingerprint().encode() + each.rows.tobytes() for each in given)
    return hashlib.sha256(content).hexdigest()
