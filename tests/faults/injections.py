"""Faults at chosen moments, and settings that keep a trial short.

Each function is called in the trial's process before the program starts.
"""

import ctypes
import errno
import importlib
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import _set_pg_timeout

from tests.faults import faulty_decoder
from train_pytorch_model.data import decoder_process, decoders
from train_pytorch_model.data.loader import Batch
from train_pytorch_model.distributed import world as distributed
from train_pytorch_model.loop.batches import Reading
from train_pytorch_model.loop.checkpoints.checkpoint import Checkpoint, save_checkpoint
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.epoch import validate
from train_pytorch_model.loop.metrics import Sums
from train_pytorch_model.loop.saving import Saver
from train_pytorch_model.loop.state import State
from train_pytorch_model.loop.step import StepOutput, TrainStep
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.stories import publish as publishing
from train_pytorch_model.stories import run as running
from train_pytorch_model.stories import train as training
from train_pytorch_model.tracking.tracker import NoTracker

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2  # Linux: bypass file and folder permissions


def constants(**values: float | tuple[float, ...]) -> None:
    """Set constants of the package: `module__NAME` for `module.NAME`; a timedelta is given in seconds."""
    for name, value in values.items():
        module_name, _, constant = name.rpartition("__")
        module = importlib.import_module("train_pytorch_model." + module_name.replace("__", "."))
        is_duration = isinstance(getattr(module, constant), timedelta)
        setattr(module, constant, timedelta(seconds=cast(float, value)) if is_duration else value)


def environment(**values: str) -> None:
    """Set environment variables of the process."""
    os.environ.update(values)


def as_an_azure_job(folder: str) -> None:
    """Run in a given working directory, as Azure ML starts a job."""
    os.chdir(folder)
    os.environ["AZUREML_RUN_ID"] = "musing_lime"


def one_thread_is_enough() -> None:
    """Use one thread: networks and images are small, and other tests use the other cores."""
    _replace(distributed, "usable_cores", lambda: 1)


def little_patience_with_others(seconds: float) -> None:
    """Shorten the timeout of collectives from the first step on, when every process has loaded torch."""
    _before_step(0, None, lambda _: _set_pg_timeout(timedelta(seconds=seconds)))


def mlflow_is_left_out() -> None:
    """Skip MLflow, which takes longer than the rest of such a short training."""
    _replace(training, "MlflowTracker", lambda *_: NoTracker())
    _replace(publishing, "save_model", lambda *_: None)


def every_checkpoint_is_waited_for() -> None:
    """Wait for every checkpoint: otherwise a step that ends while one is being written gets none."""
    write = Saver.write
    Saver.write = lambda self, wait=True: write(self, wait=True)  # type: ignore[method-assign]  # noqa: ARG005


def decoders_do_what_names_say() -> None:
    """Make every decoder a `faulty_decoder`."""
    _replace(decoder_process, "serve", faulty_decoder.serve)


def checkpoints_wait_for_step(number: int) -> None:
    """Simulate a disk so slow that no checkpoint is written before this step."""
    is_done = threading.Event()

    def save_late(folder: Path, checkpoint: Checkpoint) -> None:
        is_done.wait()
        save_checkpoint(folder, checkpoint)

    _replace(running, "save_checkpoint", save_late)
    _before_step(number, 0, lambda _: is_done.set())


def saving_takes(seconds: float) -> None:
    """Simulate a slow disk."""

    def save_slowly(folder: Path, checkpoint: Checkpoint) -> None:
        time.sleep(seconds)
        save_checkpoint(folder, checkpoint)

    _replace(running, "save_checkpoint", save_slowly)


def nothing_waits_for_the_disk() -> None:
    """Skip fsync: what a process has written outlives it either way; only a power loss would differ."""
    _replace(os, "fsync", lambda _: None)


def kill_at_file_event(event: str, below: str, number: int = 1, if_there: str = "") -> None:
    """Send SIGKILL just before the `number`-th audit event of this name on a file below a path.

    With `if_there`, only events that happen while that file exists are counted.
    """
    count = 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if name == event and str(arguments[0]).startswith(below):
            count += not if_there or Path(if_there).exists()
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def signal_at_step(number: int, signals: list[int], rank: int = 0) -> None:
    """Send these signals to the process before a step, counted from 0 since the process started."""

    def send(_: Batch) -> None:
        for each in signals:
            os.kill(os.getpid(), each)

    _before_step(number, rank, send)


def signal_in_validation(number: int, rank: int = 0) -> None:
    """Send a signal to the process at the start of the validation of epoch 2."""

    def signalled(engine: Engine, state: State, batches: Reading) -> Iterator[None]:
        if engine.world.rank == rank and state.progress.epoch == 2:
            os.kill(os.getpid(), number)
        return validate(engine, state, batches)

    _replace(training, "validate", signalled)


def fault_at_step(number: int, rank: int = 0) -> None:
    """Raise an unexpected exception on one process."""

    def fail(_: Batch) -> None:
        raise ArithmeticError("nobody has thought of this")

    _before_step(number, rank, fail)


def late(rank: int, seconds: float) -> None:
    """Delay the start of one process."""
    if rank_of(os.environ) == rank:
        time.sleep(seconds)


def sleep_in_steps(seconds: float) -> None:
    """Make every step slow."""
    call = TrainStep.__call__

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> StepOutput:
        time.sleep(seconds)
        return call(self, batch, lr, sums)

    TrainStep.__call__ = step  # type: ignore[method-assign]


def not_finite_at_step(numbers: list[int], rank: int = 0) -> None:
    """Make the loss NaN in these steps of one process."""
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> StepOutput:
        nonlocal count
        output = call(self, batch, lr, sums)
        count += 1
        is_chosen = self.world.rank == rank and count - 1 in numbers
        return replace(output, loss_sum=output.loss_sum * float("nan")) if is_chosen else output

    TrainStep.__call__ = step  # type: ignore[method-assign]


def broken_weights_at_step(numbers: list[int], rank: int = 0) -> None:
    """Make weights of one process NaN after these steps, whose losses are finite."""
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> StepOutput:
        nonlocal count
        output = call(self, batch, lr, sums)
        if self.world.rank == rank and count in numbers:
            next(self.model.parameters()).data.fill_(float("nan"))
        count += 1
        return output

    TrainStep.__call__ = step  # type: ignore[method-assign]


def out_of_memory(number: int, above: int, rank: int = 0) -> None:
    """Run out of memory from a step on when more than `above` images are computed at once."""
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> StepOutput:
        nonlocal count
        count += 1
        at_once = min(len(batch.targets), self.micro_batch or len(batch.targets))
        if self.world.rank == rank and count > number and at_once > above:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return call(self, batch, lr, sums)

    TrainStep.__call__ = step  # type: ignore[method-assign]


def remove_at_step(number: int, path: str, replaced_by_a_file: bool) -> None:
    """Remove a folder, as a lost mount does; a file in its place prevents its being created again."""

    def remove(_: Batch) -> None:
        shutil.rmtree(path)
        if replaced_by_a_file:
            Path(path).touch()

    _before_step(number, 0, remove)


def remove_file_at_open(number: int, below: str, path: str) -> None:
    """Delete a listed image just before the `number`-th time that a file below a folder is opened.

    Each process counts its own opens: the first process of a node to arrive reads the headers for all.
    """
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open" and _path_text(arguments[0]).startswith(below):
            count += 1
            if count == number:
                Path(path).unlink(missing_ok=True)

    sys.addaudithook(hook)


def every_rank_has_its_own_host() -> None:
    """Have each process open the inputs for itself."""
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")


def missing_for_rank(rank: int, path: str) -> None:
    """Hide a folder from one process, as if its host had not mounted it."""
    every_rank_has_its_own_host()
    if rank_of(os.environ) == rank:
        exists = os.path.exists
        _replace(os.path, "exists", lambda given: str(given) != path and exists(given))


def unreadable_for_rank(rank: int, path: str) -> None:
    """Make a file unreadable for one process, as if it had its own host, whose mount fails."""
    every_rank_has_its_own_host()
    if rank_of(os.environ) != rank:
        return
    _replace(decoders, "HAS_PROCESSES", False)  # this process decodes

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and _path_text(arguments[0]) == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    sys.addaudithook(hook)


def other_options_for_rank(rank: int, options: list[str]) -> None:
    """Start one process with additional options."""
    if rank_of(os.environ) == rank:
        sys.argv += options


def permissions_count() -> None:
    """Drop root's capabilities to bypass file permissions, so that modes apply to it as to other users."""
    version, process = 0x20080522, 0  # _LINUX_CAPABILITY_VERSION_3; 0 is the calling process
    header = (ctypes.c_uint32 * 2)(version, process)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: capabilities 0 to 31, then 32 to 63
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0


def limit_file_size(limit: int) -> None:
    """Limit the size of every file, in bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def full_disk(below: str, after: int = 0) -> None:
    """Fail with ENOSPC when a file below a folder is opened for writing, after the first `after` of them."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if (
            event == "open"
            and str(arguments[0]).startswith(below)
            and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            count += 1
            if count > after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])

    sys.addaudithook(hook)


def mount(below: str, too_early: int) -> None:
    """Make a folder behave like mounted storage: no renames, links or permissions, and new files appear late.

    The first `too_early` reads of each file written there return nothing.
    """
    for name in ("rename", "replace", "link", "symlink", "chmod"):
        _replace(os, name, _refusing(getattr(os, name), below))
    left: dict[str, int] = {}
    real_open = Path.open

    def mounted_open(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        key = str(path)
        if key.startswith(below) and "w" in mode:
            left[key] = too_early
        elif left.get(key, 0) > 0:
            left[key] -= 1
            return real_open(Path(os.devnull), mode, *arguments, **options)
        return real_open(path, mode, *arguments, **options)

    _replace(Path, "open", mounted_open)


def _refusing(function: Callable[..., Any], below: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if any(str(argument).startswith(below) for argument in arguments):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(arguments[0]))
        return function(*arguments, **options)

    return call


def _before_step(number: int, rank: int | None, act: Callable[[Batch], None]) -> None:
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> StepOutput:
        nonlocal count
        if count == number and rank in (None, self.world.rank):
            act(batch)
        count += 1
        return call(self, batch, lr, sums)

    TrainStep.__call__ = step  # type: ignore[method-assign]


def _path_text(argument: Any) -> str:
    """The path in an argument of `open`, or an empty string; file names may be any bytes."""
    return os.fsdecode(argument) if isinstance(argument, (str, bytes, os.PathLike)) else ""


def _replace(module: ModuleType | type, name: str, value: object) -> None:
    assert hasattr(module, name)
    setattr(module, name, value)
