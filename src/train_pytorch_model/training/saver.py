"""When a run is saved, when it stops, how it resumes and how it rolls back."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.distributed.rendezvous import EXIT_DELAY_S
from train_pytorch_model.distributed.world import is_lost_connection
from train_pytorch_model.errors import TrainingError
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.stop_requests import StoppedError, StopRequests
from train_pytorch_model.training import checkpoint_files
from train_pytorch_model.training.agreement import Agreed, Agreement
from train_pytorch_model.training.checkpoint_files import Checkpoint
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.snapshot import check, gather, restore, scatter, take_snapshot
from train_pytorch_model.training.state import State

EVERY_S = 300.0
MAX_ROLLBACKS = 3
# Between checkpoints after epochs: a kill loses at most half a minute more than with one after
# every epoch. Writing one slows the concurrent steps by 0.2 s: 6 % of an epoch of 16 small steps.
EPOCHS_EVERY_S = 30.0
UPLOADED_EVERY_S = 900.0  # where the folder is uploaded as it changes; applies after epochs as well


class NotFiniteError(Exception):
    """A loss or a weight is infinite or NaN; raised on all processes."""


class Saver:
    """The last good state of a run: in memory on every process, in files on the main one."""

    def __init__(
        self,
        folder: Path,
        every_s: float,
        engine: Engine,
        state: State,
        stop: StopRequests,
        save: Callable[[Checkpoint], None],
    ) -> None:
        """`save` writes a checkpoint into the folder, in a thread; it raises `OSError`."""
        self._folder = folder
        self._every_s = every_s
        self._engine = engine
        self._state = state
        self._stop = stop
        self._save = save
        self._world = engine.world
        self._agreement = Agreement(self._world)
        self._stepped_at: float | None = None
        self._good = take_snapshot(engine, state)  # of this process, when it was last finite

        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: tuple[Checkpoint, Future[None]] | None = None
        self._written_at = time.monotonic()
        self.unsaved: Checkpoint | None = None
        """The last good state, unless it is being or was written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if isinstance(error, RuntimeError) and is_lost_connection(error):
                # Cached now: processes still alive may end while this one saves.
                self._world.describe_lost()
                if self._stop.wait(EXIT_DELAY_S) and self._stop.signal:  # the others have stopped
                    raise self._stop_error(self._stop.signal)
            if isinstance(error, Exception):
                self.write(wait=True)
        finally:
            self._writer.shutdown(wait=True)

    def resume(self) -> bool:
        """Restore the newest checkpoint on all processes; return False if there is none.

        Raises `CheckpointError`.
        """
        checkpoint = None
        if self._world.is_main:
            checkpoint, problems = checkpoint_files.load_checkpoint(
                self._folder, partial(check, self._engine)
            )
            for problem in problems:
                logger.warning(f"Skipping a damaged checkpoint: {problem}")
        snapshot = scatter(checkpoint, self._world)
        if snapshot is None:
            return False
        restore(self._engine, self._state, snapshot)
        self._good = take_snapshot(self._engine, self._state)
        self._restore_bit_context(snapshot.values["bit_context"])
        return True

    def _restore_bit_context(self, before: Mapping[str, str]) -> None:
        """Compute with as many threads as before, and warn of what is different for the bits."""
        threads = int(before["threads"])
        if self._world.use_threads(threads) and threads != self._world.threads.count:
            logger.info(
                f"It goes on with {counted(threads, 'thread', 'threads')}, as when it was stopped."
            )
        for name, value in self._engine.bit_context().items():
            if before.get(name) != value:
                logger.warning(
                    f"The run was started with {name} {before.get(name)} and resumes with {value}:"
                    " its result will not equal that of an uninterrupted run bit for bit."
                )

    def after_step(self, loss_sum: Tensor) -> None:
        """Agree with all to continue, save, stop or roll back.

        Raises `NotFiniteError`, `StoppedError`.
        """
        now = time.monotonic()
        if self._stepped_at is not None:
            self._stop.longest_step_s = max(self._stop.longest_step_s, now - self._stepped_at)
        self._stepped_at = now
        is_due = self._world.is_main and now - self._written_at >= self._every_s
        self._act(self._agreement.exchange(loss_sum, is_due, self._stop.signal or 0))

    def after_training(self) -> None:
        """Agree once more after an epoch's training; a run can then resume at its validation."""
        self._act(self._agreement.finish())
        self._take_good()
        self._stepped_at = None  # validation is not part of a step

    def after_validation_batch(self) -> None:
        """Stop if asked to, with the state before the validation. Raises `StoppedError`.

        A process stops alone: others may have no batch, and do not come here.
        """
        if self._stop.signal:
            raise self._stop_error(self._stop.signal)

    def after_epoch(self) -> None:
        """Take the state as a good one, and write it unless one was written recently.

        Raises `NotFiniteError`.
        """
        self._take_good()
        is_uploaded = self._every_s >= UPLOADED_EVERY_S
        every_s = self._every_s if is_uploaded else min(self._every_s, EPOCHS_EVERY_S)
        if self._state.is_over or time.monotonic() - self._written_at >= every_s:
            self.write(wait=self._state.is_over)

    def roll_back(self, error: NotFiniteError) -> None:
        """Return to the last good state at half the learning rate.

        Raises `TrainingError` the fourth time.
        """
        progress = self._state.progress
        config = self._engine.plan.config
        where = f"step {progress.steps_done} of epoch {progress.epoch}"
        if progress.rollbacks == MAX_ROLLBACKS:
            raise TrainingError(
                f"{error} at {where}, after halving the learning rate {MAX_ROLLBACKS} times."
                f" Lower {parameter('learning_rate')}, now {config.learning_rate}, or warm up with"
                f" {parameter('warmup_epochs')}."
            )
        restore(self._engine, self._state, self._good, rolls_back=True)
        progress = self._state.progress
        logger.warning(
            f"{error} at {where}. Back to step {progress.steps_done} of epoch {progress.epoch}, the"
            f" learning rate halved from here on ({progress.rollbacks} of {MAX_ROLLBACKS} times)."
        )

    def _take_good(self) -> None:
        """Take the current state as the last good one.

        Raises `NotFiniteError` if it is not finite on any process: batch norm statistics differ
        between them.
        """
        is_bad = torch.tensor([float(not self._engine.is_finite())], device=self._world.device)
        if self._world.max(is_bad).item():
            raise NotFiniteError("A weight is no longer a finite number")
        self._good = take_snapshot(self._engine, self._state)
        self.unsaved = gather(self._good, self._world)

    def write(self, wait: bool = False) -> bool:
        """Write the last good state, in the background unless `wait`.

        Returns False if writing has failed; the next call tries again.
        """
        self._written_at = time.monotonic()
        is_written = self._finish_writing(wait)
        if self.unsaved is not None and self._writing is None:
            writing = self._writer.submit(self._save, self.unsaved)
            self._writing = (self.unsaved, writing)
            self.unsaved = None
            is_written = self._finish_writing(wait)
        return is_written

    def _act(self, agreed: Agreed) -> None:
        """Do what all processes have agreed on. Raises `NotFiniteError`, `StoppedError`."""
        if not agreed.is_finite:
            raise NotFiniteError("The training loss is no longer a finite number")
        if agreed.stop:
            self._take_good()
            stopped = self._stop_error(agreed.stop)
            with suppress(RuntimeError):
                # Rank 0 may be writing, and a launcher ends all when one ends.
                self._world.barrier()
            raise stopped
        if agreed.is_due:
            self._take_good()
            self.write()

    def _stop_error(self, number: int) -> StoppedError:
        """Write the last good state, and return the error that ends the run."""
        logger.info("Asked to stop: writing a checkpoint first.")
        return StoppedError(number, self._folder, is_saved=self.write(wait=True))

    def _finish_writing(self, wait: bool) -> bool:
        """Look whether the writing in progress is over; return False if it has failed."""
        if self._writing is None:
            return True
        checkpoint, writing = self._writing
        if not (wait or writing.done()):
            return True
        error = writing.exception()
        self._writing = None
        if error is None:
            return True
        self.unsaved = self.unsaved or checkpoint
        logger.warning(f"A checkpoint cannot be written ({error}). The next save tries again.")
        return False
