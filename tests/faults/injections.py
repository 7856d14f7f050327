"""Faults at chosen moments, and settings that keep a trial short.

Each function is called in the trial's process before the program starts.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import _set_pg_timeout

from tests.faults import faulty_decoder
from tests.faults.file_injections import replace_in
from train_pytorch_model.data import decoder_process
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.formats import writing
from train_pytorch_model.machine import cores, stop_requests
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.publishing import run
from train_pytorch_model.stories import train
from train_pytorch_model.tracking import tracker
from train_pytorch_model.tracking.tracker import MlflowTracker
from train_pytorch_model.training import saver
from train_pytorch_model.training.batches import BatchLoader
from train_pytorch_model.training.checkpoint_files import Checkpoint, save_checkpoint
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.epoch import validate
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.saver import Saver
from train_pytorch_model.training.state import State
from train_pytorch_model.training.step import StepOutput, TrainStep


def checkpoints_on_request_only() -> None:
    """Write no checkpoint by the clock."""
    replace_in(train, saver.EVERY_S, 800.0)
    saver.EPOCHS_EVERY_S = 800.0


def a_checkpoint_after_every_step() -> None:
    replace_in(train, saver.EVERY_S, 0.0)


def signals_together_within(seconds: float) -> None:
    """Take signals for one request that arrive within these seconds; a negative number, none."""
    stop_requests.TOGETHER_S = seconds


def a_step_may_take(seconds: float) -> None:
    """Wait this long for a step when the run is asked to stop."""
    stop_requests.GRACE_S = seconds


def files_are_read_back_twice() -> None:
    """Compare a file that was written twice, without a pause, before it counts as lost."""
    replace_in(writing, writing.READ_BACK_AFTER_S, (0.0, 0.0))


def the_tracker_closes_within(seconds: float) -> None:
    tracker.CLOSING_S = seconds


def environment(**values: str) -> None:
    """Set environment variables of the process."""
    os.environ.update(values)


def as_an_azure_job(folder: str) -> None:
    """Run in a given working directory, as Azure ML starts a job."""
    os.chdir(folder)
    os.environ["AZUREML_RUN_ID"] = "musing_lime"


def one_thread_is_enough() -> None:
    """Use one thread: networks and images are small, and other tests use the other cores."""
    replace_in(cores, cores.usable_cores, lambda: 1)


def little_patience_with_others(seconds: float) -> None:
    """Shorten the timeout of collectives from the first step on, when every process has loaded
    torch.
    """
    _before_step(0, None, lambda _: _set_pg_timeout(timedelta(seconds=seconds)))


def mlflow_is_left_out() -> None:
    """Skip MLflow, which takes longer than the rest of such a short training."""
    from train_pytorch_model.tracking import save_model  # here, because it imports mlflow

    replace_in(train, MlflowTracker, lambda *_: None)
    replace_in(save_model, save_model.save_model, lambda *_: None)


def every_checkpoint_is_waited_for() -> None:
    """Wait for every checkpoint: a step that ends while one is being written gets none."""
    write = Saver.write
    Saver.write = lambda self, wait=True: write(self, wait=True)  # type: ignore[method-assign]  # noqa: ARG005


def decoders_do_what_names_say() -> None:
    """Make every decoder a `faulty_decoder`."""
    replace_in(decoder_process, decoder_process.serve, faulty_decoder.serve)


def checkpoints_wait_for_step(number: int) -> None:
    """Simulate a disk so slow that no checkpoint is written before this step."""
    is_done = threading.Event()

    def save_late(folder: Path, checkpoint: Checkpoint) -> None:
        is_done.wait()
        save_checkpoint(folder, checkpoint)

    replace_in(run, save_checkpoint, save_late)
    _before_step(number, 0, lambda _: is_done.set())


def saving_takes(seconds: float) -> None:
    """Simulate a slow disk."""

    def save_slowly(folder: Path, checkpoint: Checkpoint) -> None:
        time.sleep(seconds)
        save_checkpoint(folder, checkpoint)

    replace_in(run, save_checkpoint, save_slowly)


def signal_at_step(number: int, signals: list[int], rank: int = 0) -> None:
    """Send these signals to the process before a step, counted from 0 since the process started."""

    def send(_: Batch) -> None:
        for each in signals:
            os.kill(os.getpid(), each)

    _before_step(number, rank, send)


def signal_in_validation(number: int, rank: int = 0) -> None:
    """Send a signal to the process at the start of the validation of epoch 2."""

    def signalled(engine: Engine, state: State, validation_loader: BatchLoader) -> Iterator[None]:
        if engine.world.rank == rank and state.progress.epoch == 2:
            os.kill(os.getpid(), number)
        return validate(engine, state, validation_loader)

    replace_in(train, validate, signalled)


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
    """Remove a folder, as a lost mount does; a file in its place prevents a new one."""

    def remove(_: Batch) -> None:
        shutil.rmtree(path)
        if replaced_by_a_file:
            Path(path).touch()

    _before_step(number, 0, remove)


def other_options_for_rank(rank: int, options: list[str]) -> None:
    """Start one process with additional options."""
    if rank_of(os.environ) == rank:
        sys.argv += options


def _before_step(number: int, rank: int | None, act: Callable[[Batch], None]) -> None:
    call, count = TrainStep.__call__, 0

    def step(self: TrainStep, batch: Batch, lr: float | Tensor, sums: Sums) -> StepOutput:
        nonlocal count
        if count == number and rank in (None, self.world.rank):
            act(batch)
        count += 1
        return call(self, batch, lr, sums)

    TrainStep.__call__ = step  # type: ignore[method-assign]
