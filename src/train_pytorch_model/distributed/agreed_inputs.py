"""Open the inputs in one process of each host, and give all processes those of rank 0."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
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
    inputs, error = _open_on_first_ranks(open_inputs, world)
    for raised in world.gather([error]):
        if raised:
            raise raised
    agreed = world.broadcast(inputs)
    if agreed is None:
        return None
    if isinstance(agreed, OpenedInputs):
        model = {} if inputs is None else {"untrained_model": inputs.model.sha256}
        _check_same_command(world.gather([{**options, **model}]))
    if world.local_size < world.size:
        _warn_of_other_images(world.gather([None if inputs is None else _sha256(inputs)]))
    return agreed


def _open_on_first_ranks(
    open_inputs: Callable[[], T | None], world: World
) -> tuple[T | None, UserError | None]:
    """Open the inputs in a thread, and wait for the other ranks that do.

    It may take longer than the timeout of a collective, so that no rank waits in a single one for another.
    """
    opened: Future[T | None] = Future()

    def work() -> None:
        try:
            opened.set_result(open_inputs())
        except BaseException as error:
            opened.set_exception(error)

    if world.local_rank == 0:
        threading.Thread(target=work, daemon=True, name="opening").start()
    else:
        opened.set_result(None)
    while not all(world.gather([opened.done()])):
        wait([opened], POLL_S)
    try:
        return opened.result(), None
    except UserError as error:
        return None, error


def _check_same_command(options: Sequence[Mapping[str, str]]) -> None:
    """Raise `TrainingError` unless all ranks have the options of rank 0."""
    differences = [
        f"rank {rank}: {option} is {value}, not {mains}"
        if value
        else f"rank {rank}: {option} has other content"
        for rank, own in enumerate(options)
        for option, mains, value in differing_options(options[0], own)
    ]
    if differences:
        raise TrainingError(
            f"Not all processes were started with the command of rank 0:{bulleted(differences)}\n"
            "Start all of them with the same one."
        )


def _warn_of_other_images(hashes: Sequence[str | None]) -> None:
    """Warn if a rank has found other images than rank 0; None for one that has not looked."""
    ranks = [str(rank) for rank, found in enumerate(hashes) if found not in (None, hashes[0])]
    if ranks:
        logger.warning(
            f"Other images exist or are readable for rank {', '.join(ranks)}; those of rank 0 are used."
        )


def _sha256(inputs: OpenedInputs | ScoringInputs) -> str:
    """Return a hash of the images and of their rows: caches and results refer to rows."""
    directories: tuple[ImageDirectory, ...]
    if isinstance(inputs, OpenedInputs):
        directories = inputs.training, inputs.validation
    else:
        directories = (inputs.images,)
    digest = hashlib.sha256()
    for directory in directories:
        digest.update(directory.fingerprint().encode() + directory.rows.tobytes())
    return digest.hexdigest()
