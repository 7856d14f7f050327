"""What a trial does to itself: faults at chosen moments, and constants that would make it long.

Each function is called before the program begins, in its own process.
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
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import _set_pg_timeout

from train_pytorch_model import distributed, training
from train_pytorch_model.checkpoints.checkpoint import Checkpoint, save_checkpoint
from train_pytorch_model.commands import processes
from train_pytorch_model.commands import train as train_command
from train_pytorch_model.data import decoders
from train_pytorch_model.data.loader import Batch
from train_pytorch_model.launch import rank_of
from train_pytorch_model.loop import checkpointing
from train_pytorch_model.loop.checkpointing import Checkpointer
from train_pytorch_model.loop.metrics import Sums
from train_pytorch_model.loop.passes import TrainStep
from train_pytorch_model.tracking.mlflow_process import Mlflow, mlflow_beside
from train_pytorch_model.tracking.tracker import NoTracker

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2  # of Linux: past the modes of files, and of folders


def constants(**values: float | tuple[float, ...]) -> None:
    """Set `module.NAME` of the package, written as `module__NAME`; a timedelta in seconds."""
    for name, value in values.items():
        module_name, _, constant = name.rpartition("__")
        module = importlib.import_module("train_pytorch_model." + module_name.replace("__", "."))
        is_duration = isinstance(getattr(module, constant), timedelta)
        setattr(module, constant, timedelta(seconds=cast(float, value)) if is_duration else value)


def environment(**values: str) -> None:
    """Variables of the process."""
    os.environ.update(values)


def as_an_azure_job(folder: str) -> None:
    """In a working directory of its own, as Azure ML starts a job."""
    os.chdir(folder)
    os.environ["AZUREML_RUN_ID"] = "musing_lime"


def one_thread_is_enough() -> None:
    """For networks and images that small, when other tests take the other cores."""
    _replace(distributed, "usable_cores", lambda: 1)


def little_patience_with_others(seconds: float) -> None:
    """How long an exchange waits, from the first step on; before it, each loads torch in its own time."""
    _before_step(0, None, lambda _: _set_pg_timeout(timedelta(seconds=seconds)))


def mlflow_is_left_out() -> None:
    """It takes longer than the rest of a training that is so short."""
    _replace(training, "MlflowTracker", lambda *_: NoTracker())
    _replace(Mlflow, "call", lambda *_: None)


def mlflow_has_no_process() -> None:
    """It is loaded already in what trials are forked from; a process would have to load it."""
    _replace(train_command, "mlflow_beside", lambda: nullcontext(Mlflow()))


def mlflow_has_a_process(pid_file: str) -> None:
    """As the program starts it; its number is in a file."""

    @contextmanager
    def beside() -> Iterator[Mlflow]:
        with mlflow_beside() as process:
            Path(pid_file).write_text(str(process.pid))  # type: ignore[attr-defined]  # not without one
            yield process

    _replace(train_command, "mlflow_beside", beside)


def every_checkpoint_is_waited_for() -> None:
    """Else a step may end before the checkpoint of the one before is written, and go without its own."""
    write = Checkpointer.write
    Checkpointer.write = lambda self, wait=True: write(self, wait=True)  # type: ignore[method-assign]  # noqa: ARG005


def decoders_do_what_names_say() -> None:
    """Each decoder is `faulty_decoder`."""
    _replace(decoders, "PROGRAM", "from tests.faults.faulty_decoder import main; main()")


def checkpoints_wait_for_step(number: int) -> None:
    """A disk so slow that it has not written one before so many steps are done."""
    is_done = threading.Event()

    def save_late(folder: Path, checkpoint: Checkpoint) -> None:
        is_done.wait()
        save_checkpoint(folder, checkpoint)

    _replace(checkpointing, "save_checkpoint", save_late)
    _before_step(number, 0, lambda _: is_done.set())


def saving_takes(seconds: float) -> None:
    """A slow disk."""

    def save_slowly(folder: Path, checkpoint: Checkpoint) -> None:
        time.sleep(seconds)
        save_checkpoint(folder, checkpoint)

    _replace(checkpointing, "save_checkpoint", save_slowly)


def nothing_waits_for_the_disk() -> None:
    """What a process has written outlives the process, synced or not; only a power loss would tell."""
    _replace(os, "fsync", lambda _: None)


def kill_at_file_event(event: str, below: str, number: int = 1, if_there: str = "") -> None:
    """SIGKILL just before the so-manieth time that something happens to a file below a path.

    Only times count at which another file is there.
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
    """Send these signals to this process in a step, counted from 0 over the whole process."""

    def send(_: Batch) -> None:
        for each in signals:
            os.kill(os.getpid(), each)

    _before_step(number, rank, send)


def signal_in_validation(number: int, rank: int = 0) -> None:
    """The same at the beginning of the first validation."""
    from train_pytorch_model.loop import trainer

    validate = trainer.Trainer.validate

    def signalled(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.world.rank == rank and self.state.position.epoch == 2:
            os.kill(os.getpid(), number)
        return validate(self, *arguments, **options)

    trainer.Trainer.validate = signalled  # type: ignore[method-assign]


def fault_at_step(number: int, rank: int = 0) -> None:
    """A mistake of ours, on one process."""

    def fail(_: Batch) -> None:
        raise ArithmeticError("nobody has thought of this")

    _before_step(number, rank, fail)


def late(rank: int, seconds: float) -> None:
    """A process that comes after the others."""
    if rank_of(os.environ) == rank:
        time.sleep(seconds)


def sleep_in_steps(seconds: float) -> None:
    """Steps that take long."""
    call = TrainStep.__call__

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> Tensor:
        time.sleep(seconds)
        return call(self, batch, lr, sums)

    TrainStep.__call__ = step  # type: ignore[method-assign]


def not_finite_at_step(numbers: list[int], rank: int = 0) -> None:
    """The loss of these steps of the process is not a number."""
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> Tensor:
        nonlocal count
        loss_sum = call(self, batch, lr, sums)
        count += 1
        is_chosen = self.world.rank == rank and count - 1 in numbers
        return loss_sum * float("nan") if is_chosen else loss_sum

    TrainStep.__call__ = step  # type: ignore[method-assign]


def broken_weights_at_step(numbers: list[int], rank: int = 0) -> None:
    """Weights of the process that are no numbers after these steps, whose losses were."""
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> Tensor:
        nonlocal count
        loss_sum = call(self, batch, lr, sums)
        if self.world.rank == rank and count in numbers:
            next(self.model.parameters()).data.fill_(float("nan"))
        count += 1
        return loss_sum

    TrainStep.__call__ = step  # type: ignore[method-assign]


def out_of_memory(number: int, above: int, rank: int = 0) -> None:
    """From a step on, more than so many images at once do not fit."""
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> Tensor:
        nonlocal count
        count += 1
        at_once = min(len(batch.targets), self.micro_batch or len(batch.targets))
        if self.world.rank == rank and count > number and at_once > above:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return call(self, batch, lr, sums)

    TrainStep.__call__ = step  # type: ignore[method-assign]


def remove_at_step(number: int, path: str, replaced_by_a_file: bool) -> None:
    """A folder vanishes, as a mount does; a file in its place keeps it from being made again."""

    def remove(_: Batch) -> None:
        shutil.rmtree(path)
        if replaced_by_a_file:
            Path(path).touch()

    _before_step(number, 0, remove)


def remove_file_at_open(number: int, below: str, path: str) -> None:
    """An image that was listed is gone, just before the so-manieth time that one below a folder is opened.

    Each process counts for itself: which of a node's looks at the headers is the one that comes first.
    """
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open" and _path_text(arguments[0]).startswith(below):
            count += 1
            if count == number:
                Path(path).unlink(missing_ok=True)

    sys.addaudithook(hook)


def unreadable_for_rank(rank: int, path: str) -> None:
    """A file that one process cannot read, as when the mount of its host fails; each has its own host."""
    _replace(processes, "once_per_node", lambda _, make: make())
    if rank_of(os.environ) != rank:
        return
    _replace(decoders, "PROGRAM", "")  # none comes up, and this process decodes

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and _path_text(arguments[0]) == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    sys.addaudithook(hook)


def other_options_for_rank(rank: int, options: list[str]) -> None:
    """One process is started by another command."""
    if rank_of(os.environ) == rank:
        sys.argv += options


def permissions_count() -> None:
    """Root, who may read every file, may read what its mode allows, as everybody else."""
    version, process = 0x20080522, 0  # of the call, and this one
    header = (ctypes.c_uint32 * 2)(version, process)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: of capabilities 0 to 31, and above
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0


def limit_file_size(limit: int) -> None:
    """No file may grow beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def full_disk(below: str, after: int = 0) -> None:
    """No file below a folder can be opened for writing, once so many have been."""
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
    """A folder is a mounted storage: it knows no renames, links and permissions, and shows late what it got.

    Of each file that is written there, so many readings find nothing yet.
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

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> Tensor:
        nonlocal count
        if count == number and rank in (None, self.world.rank):
            act(batch)
        count += 1
        return call(self, batch, lr, sums)

    TrainStep.__call__ = step  # type: ignore[method-assign]


def _path_text(argument: Any) -> str:
    """Of what a file is opened by; file names may be any bytes."""
    return os.fsdecode(argument) if isinstance(argument, (str, bytes, os.PathLike)) else ""


def _replace(module: ModuleType | type, name: str, value: object) -> None:
    assert hasattr(module, name)
    setattr(module, name, value)
