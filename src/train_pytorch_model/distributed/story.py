"""Run a story in this process, in those that a launcher has started, or in one per GPU.

The first process of each host opens the inputs; all get those of rank 0.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.distributed.waiting import in_thread
from train_pytorch_model.distributed.workers import start_workers
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import FailedWorkersError, TrainingError, UserError
from train_pytorch_model.formats.fingerprint import differing_options
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.launch import LAUNCHER, Agent, decide
from train_pytorch_model.machine.memory import keep_freed_memory
from train_pytorch_model.machine.threads import short_switch_interval

T = TypeVar("T", OpenedInputs, ScoringInputs)
R = TypeVar("R")
POLL_S = 0.2


def run_story(
    story: Callable[[T, World], R],
    open_inputs: Callable[[], T | None],
    opened: T | None,
    arguments: Sequence[str],
    options: Mapping[str, str],
    began: CoreTimes | None,
) -> R | None:
    """Run a story on its inputs, or start one worker per GPU with `arguments`, the verb first.

    The inputs are already `opened` in a process that no launcher has started; otherwise the first
    rank of each host opens them. All ranks must have the same `options`; this process `began` then.
    Returns what the story returns, None if it does not run in this process. Raises `LaunchError`,
    `FailedWorkersError`, and whatever the story raises.
    """
    role = decide(os.environ, torch.cuda.device_count())
    if role.note:
        logger.info(role.note)
    if LAUNCHER in os.environ:
        # A worker of ours needs no file with its error, and fails for it if /tmp is full.
        os.environ.pop("TORCHELASTIC_ERROR_FILE", None)
    if isinstance(role, Agent):
        if opened is not None or open_inputs() is not None:
            _start_workers(role, arguments)
        return None

    @record  # without it, torchrun shows no traceback of an exception
    def work() -> R | None:
        keep_freed_memory()
        if role.warning:
            logger.warning(role.warning)
        if role.size > 1:
            os.environ.update(role.variables())
        with short_switch_interval(), join_world(began) as world:
            inputs = open_together(open_inputs, options, world) if world.size > 1 else opened
            return story(inputs, world) if inputs is not None else None

    return work()


def _start_workers(agent: Agent, arguments: Sequence[str]) -> None:
    """Start this node's workers. Raises `LaunchError`, and `FailedWorkersError` if they fail."""
    logger.info(agent.torchrun_line(arguments))
    status = start_workers(agent, arguments)
    if status:
        raise FailedWorkersError(status)


def open_together(
    open_inputs: Callable[[], T | None], options: Mapping[str, str], world: World
) -> T | None:
    """Return rank 0's inputs, for all; each host's first rank opens them.

    Raises any rank's error, or `TrainingError`.
    """
    inputs = _open_on_each_host(open_inputs, world)
    inputs_of_main = world.broadcast(inputs)
    if inputs_of_main is None:
        return None
    if isinstance(inputs_of_main, OpenedInputs):
        model = {} if inputs is None else {"untrained_model": inputs.model.sha256}
        _require_same_options({**options, **model}, world)
    if world.local_size < world.size:
        _warn_of_other_images(inputs, world)
    return inputs_of_main


def _open_on_each_host(open_inputs: Callable[[], T | None], world: World) -> T | None:
    """Return the inputs on the first rank of each host; elsewhere None. Raises any rank's error."""
    # In a thread, as it may take longer than the timeout of a collective: no rank waits in a single
    # one for another.
    opening: Future[T | None] = in_thread(open_inputs if world.local_rank == 0 else lambda: None)
    while not all(world.gather([opening.done()])):
        wait([opening], POLL_S)
    raised = opening.exception()
    if raised and not isinstance(raised, UserError):
        raise raised
    for error in world.gather([raised]):
        if error:
            raise error
    return opening.result()


def _require_same_options(options: Mapping[str, str], world: World) -> None:
    """Raise `TrainingError` if ranks have other options than rank 0."""
    options_of_main, *others = world.gather([options])
    differences = []
    for rank, options_of_rank in enumerate(others, start=1):
        for option, expected, value in differing_options(options_of_main, options_of_rank):
            is_other = f"is {value}, not {expected}" if value else "has other content"
            differences.append(f"rank {rank}: {option} {is_other}")
    if differences:
        raise TrainingError(
            "Not all processes were started with the command of rank"
            f" 0:{bulleted(differences)}\nStart all of them with the same one."
        )


def _warn_of_other_images(inputs: OpenedInputs | ScoringInputs | None, world: World) -> None:
    """Warn of hosts whose images differ from rank 0's.

    Images that are missing there are unreadable.
    """
    hashes = world.gather([None if inputs is None else _sha256(inputs)])
    others = [str(rank) for rank, sha256 in enumerate(hashes) if sha256 not in (None, hashes[0])]
    if others:
        logger.warning(
            f"Other images exist or are readable for rank {', '.join(others)}; those of rank 0 are"
            " used."
        )


def _sha256(inputs: OpenedInputs | ScoringInputs) -> str:
    """Return a hash of the images and of their rows: caches and results refer to rows."""
    if isinstance(inputs, ScoringInputs):
        directories = [inputs.images]
    else:
        directories = [inputs.training, inputs.validation]
    sha256 = hashlib.sha256()
    for images in directories:
        sha256.update(images.fingerprint().encode() + images.rows.tobytes())
    return sha256.hexdigest()
