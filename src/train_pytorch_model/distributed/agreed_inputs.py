"""Open the inputs in one process of each host, and give all processes those of rank 0."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.formats.run_folder import differing_options
from train_pytorch_model.inputs.opening import OpenedInputs, ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.words.errors import TrainingError, UserError, listed

POLL_S = 0.2

T = TypeVar("T", OpenedInputs, ScoringInputs)


@dataclass(frozen=True)
class Report:
    """What a rank tells the others once the inputs are open."""

    options: Mapping[str, str]
    """What it was asked to do."""
    error: UserError | None = None
    model: ModelDirectory | None = None
    """Set, as are the next two, for a rank that has opened inputs."""
    roots: tuple[Path, ...] = ()
    images: tuple[str, ...] = ()
    """A hash of each directory; none in a run on one host."""


def open_together(open_inputs: Callable[[], T | None], options: Mapping[str, str], world: World) -> T | None:
    """Return the inputs that rank 0 finds, on all ranks, with the paths of their own host.

    The first rank of each host opens them. Missing images are rejected when they are read. A `UserError` that
    a rank raises is raised on all, as is `TrainingError` if their `options` differ.
    """
    inputs, error = _open_on_first_ranks(open_inputs, world)
    reports = world.gather([_report(inputs, error, options, world)])
    for report in reports:
        if report.error:
            raise report.error
    if reports[0].model is None:
        return None
    _check_same_command(reports)
    _warn_of_other_images(reports)
    return _with_local_paths(world.broadcast(inputs), reports, world)


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


def _report(inputs: T | None, error: UserError | None, options: Mapping[str, str], world: World) -> Report:
    if inputs is None:
        return Report(options, error)
    directories = _directories(inputs).values()
    has_other_hosts = world.local_size < world.size
    return Report(
        options={**options, "untrained_model": inputs.model.sha256}
        if isinstance(inputs, OpenedInputs)
        else options,
        model=inputs.model,
        roots=tuple(directory.root for directory in directories),
        images=tuple(map(_sha256, directories)) if has_other_hosts else (),
    )


def _check_same_command(reports: Sequence[Report]) -> None:
    differences = [
        f"rank {rank}: {option} is {value}, not {mains}"
        if value
        else f"rank {rank}: {option} has other content"
        for rank, report in enumerate(reports)
        for option, mains, value in differing_options(reports[0].options, report.options)
    ]
    if differences:
        raise TrainingError(
            f"Not all processes were started with the command of rank 0:{listed(differences)}\n"
            "Start all of them with the same one."
        )


def _warn_of_other_images(reports: Sequence[Report]) -> None:
    ranks = [str(rank) for rank, report in enumerate(reports) if report.images not in ((), reports[0].images)]
    if ranks:
        logger.warning(
            f"Other images exist or are readable for rank {', '.join(ranks)}; those of rank 0 are used."
        )


def _with_local_paths(inputs: T | None, reports: Sequence[Report], world: World) -> T | None:
    """Return the inputs with the model and the roots that were opened on this host."""
    opened = {
        world.peers[rank].host: report for rank, report in enumerate(reports) if report.model is not None
    }
    own = reports[world.rank] if reports[world.rank].model else opened.get(world.peers[world.rank].host)
    if inputs is None or own is None or own.model is None:
        return inputs
    directories: dict[str, Any] = {
        name: replace(directory, root=root)
        for (name, directory), root in zip(_directories(inputs).items(), own.roots, strict=True)
    }
    return replace(inputs, model=own.model, **directories)


def _directories(inputs: OpenedInputs | ScoringInputs) -> dict[str, ImageDirectory]:
    """Return the image directories by the names of their fields."""
    if isinstance(inputs, OpenedInputs):
        return {"training": inputs.training, "validation": inputs.validation}
    return {"images": inputs.images}


def _sha256(directory: ImageDirectory) -> str:
    """Return a hash of the images and of their rows: caches and results refer to rows."""
    return directory.fingerprint() + hashlib.sha256(directory.rows.tobytes()).hexdigest()
