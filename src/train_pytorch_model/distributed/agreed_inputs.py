"""Open the inputs in one process of each host, and give all processes those of rank 0."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from train_pytorch_model.distributed.world import World, in_thread
from train_pytorch_model.formats.run_folder import differing_options
from train_pytorch_model.inputs.opening import OpenedInputs, ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.words.errors import TrainingError, UserError, bulleted

POLL_S = 0.2

T = TypeVar("T", OpenedInputs, ScoringInputs)


def open_together(open_inputs: Callable[[], T | None], options: Mapping[str, str], world: World) -> T | None:
    """Return the inputs that rank 0 finds, on all ranks; the first rank of each host opens them.

    Images that are missing on another host are rejected when they are read. A `UserError` that a rank raises
    is raised on all, as is `TrainingError` if the `options` of their commands, or their models, differ.
    """
    # In a thread, as it may take longer than the timeout of a collective: no rank waits in a single one for
    # another.
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
        _check_same_command(world.gather([{**options, **model}]))
    if world.local_size < world.size:
        hashes = world.gather([None if inputs is None else _sha256(inputs)])
        others = [str(rank) for rank, found in enumerate(hashes) if found not in (None, hashes[0])]
        if others:
            ranks = ", ".join(others)
            logger.warning(f"Other images exist or are readable for rank {ranks}; those of rank 0 are used.")
    return agreed


def _check_same_command(options: Sequence[Mapping[str, str]]) -> None:
    """Raise `TrainingError` unless all ranks have the options of rank 0."""
    differences = [
        f"rank {rank}: {option} " + (f"is {value}, not {mains}" if value else "has other content")
        for rank, own in enumerate(options)
        for option, mains, value in differing_options(options[0], own)
    ]
    if differences:
        raise TrainingError(
            f"Not all processes were started with the command of rank 0:{bulleted(differences)}\n"
            "Start all of them with the same one."
        )


def _sha256(inputs: OpenedInputs | ScoringInputs) -> str:
    """Return a hash of the images and of their rows: caches and results refer to rows."""
    given = [inputs.images] if isinstance(inputs, ScoringInputs) else [inputs.training, inputs.validation]
    digest = hashlib.sha256()
    for directory in given:
        digest.update(directory.fingerprint().encode() + directory.rows.tobytes())
    return digest.hexdigest()
