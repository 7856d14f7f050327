"""When a run is saved, when it stops and how it resumes; decided by all processes together.

After each step each process reports three numbers, and all act on the maximum of each: to continue,
save, stop or roll back. On a CPU the answer is for the step just taken. On a GPU, reading it at
once would stall the device, so the answer is for the previous step. All processes get the same one.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.distributed.rendezvous import EXIT_DELAY_S
from train_pytorch_model.distributed.world import World, is_lost_connection
from train_pytorch_model.errors import TrainingError
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.stop_requests import StoppedError, StopRequests
from train_pytorch_model.training import checkpoint_files
from train_pytorch_model.training.checkpoint_files import Checkpoint
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.metrics import read_later
from train_pytorch_model.training.snapshot import check, gather, restore, scatter, take_snapshot
from train_pytorch_model.training.state import State

EVERY_S = 300.0
MAX_ROLLBACKS = 3
# Between checkpoints after epochs: a kill loses at most half a minute more than with one after
# every epoch. Writing one slows the concurrent steps by 0.2 s: 6 % of an epoch of 16 small steps.
EPOCHS_EVERY_S = 30.0
UPLOADED_EVERY_S = 900.0  # where the folder is uploaded as it changes; applies after epochs as well


@dataclass(frozen=True)
class Agreed:
    """The outcome of an exchange, the same on all processes."""

    is_finite: bool = True  # whether the step's loss was finite on all processes
    is_due: bool = False  # whether a checkpoint is due
    stop: int = 0  # the signal that asks the run to stop, 0 for none


class Agreement:
    """Exchanges three numbers between the processes after each step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._late: Callable[[], Agreed] = Agreed

    def exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Agreed:
        """Exchange a step's loss and requests; on a GPU, return the answer to those of the step
        before.
        """
        now = self._exchange(loss_sum.detach(), is_due, stop)
        if self._world.device.type != "cuda":
            return now()
        before, self._late = self._late, now
        answer = before()
        if answer.is_finite and not (answer.is_due or answer.stop):
            return answer
        self._late = Agreed  # this step is rolled back or saved with the previous one
        # What is saved includes this step, so its loss counts; saving waits for the device anyway.
        return replace(answer, is_finite=answer.is_finite and now().is_finite)

    def finish(self) -> Agreed:
        """Return the answer that is still pending at the end of an epoch."""
        before, self._late = self._late, Agreed
        return before()

    def _exchange(self, loss_sum: Tensor, is_due: bool, stop: int) -> Callable[[], Agreed]:
        if self._world.size == 1:  # nothing to communicate
            loss = read_later(loss_sum)
            return lambda: Agreed(math.isfinite(*loss()), is_due, stop)
        requests = torch.tensor([0.0, float(is_due), float(stop)], device="cpu")
        if self._world.device.type == "cuda":
            requests = requests.pin_memory().to(self._world.device, non_blocking=True)
        requests[0] = (~torch.isfinite(loss_sum)).float()
        maxima = read_later(self._world.max(requests))

        def read() -> Agreed:
            not_finite, some_due, last_stop = maxima()
            return Agreed(not_finite == 0, some_due > 0, int(last_stop))

        return read


class NotFiniteError(Exception):
    """A loss or a weight is infinite or NaN; raised on all processes."""


class Saver:
    """Keeps the last good state of a run: in memory on every process, in files on the main one."""

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
        self._folder, self._every_s, self._save = folder, every_s, save
        self._engine, self._state, self._world, self._stop = engine, state, engine.world, stop
        self._agreement = Agreement(self._world)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: tuple[Checkpoint, Future[None]] | None = None
        self.unsaved: Checkpoint | None = (
            None  # what was kept last, unless it is being or was written
        )
        self._written_at = time.monotonic()
        self._stepped_at: float | None = None
        self._good = take_snapshot(engine, state)  # of this process, when it was last finite

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
        """Restore the newest checkpoint on all processes; False without one.

        Raises `CheckpointError`.
        """
        checkpoint, accept = None, partial(check, self._engine)
        if self._world.is_main:
            checkpoint, problems = checkpoint_files.load_checkpoint(self._folder, accept)
            for problem in problems:
                logger.warning(f"Skipping a damaged checkpoint: {problem}")
        snapshot = scatter(checkpoint, self._world)
        if snapshot is None:
            return False
        restore(self._engine, self._state, snapshot)
        self._good = take_snapshot(self._engine, self._state)
        before = snapshot.values["environment"]
        threads = int(before["threads"])
        if self._world.use_threads(threads) and threads != self._world.threads.count:
            logger.info(
                f"It goes on with {counted(threads, 'thread', 'threads')}, as when it was stopped."
            )
        for name, value in self._engine.bit_context().items():
            if before.get(name) != value:
                logger.warning(
                    f"The run was started with {name} {before.get(name)} and resumes with {value}:"
                    " its result"
                    " will not equal that of an uninterrupted run bit for bit."
                )
        return True

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
        """Agree once more after an epoch's training, and keep the state: a run can resume at
        validation.
        """
        self._act(self._agreement.finish())
        self._keep()
        self._stepped_at = None  # validation is not part of a step

    def after_validation_batch(self) -> None:
        """Stop with the state before; others, not asked, may have no batch.

        Raises `StoppedError`.
        """
        if self._stop.signal:
            raise self._stop_error(self._stop.signal)

    def after_epoch(self) -> None:
        """Keep the state, and write it unless one was written recently. Raises `NotFiniteError`."""
        self._keep()
        is_uploaded = self._every_s >= UPLOADED_EVERY_S
        apart_s = self._every_s if is_uploaded else min(self._every_s, EPOCHS_EVERY_S)
        if self._state.is_over or time.monotonic() - self._written_at >= apart_s:
            self.write(wait=self._state.is_over)

    def roll_back(self, error: NotFiniteError) -> None:
        """Return to the last good state at half the learning rate; the fourth time raise
        `TrainingError`.
        """
        progress, config = self._state.progress, self._engine.plan.config
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
            " learning"
            f" rate halved from here on ({progress.rollbacks} of {MAX_ROLLBACKS} times)."
        )

    def _keep(self) -> None:
        """Keep the current state as the last good one.

        Raises `NotFiniteError` if it is not finite.
        """
        bad = torch.tensor([float(not self._engine.is_finite())], device=self._world.device)
        if self._world.max(bad).item():  # on any process: batch norm statistics differ between them
            raise NotFiniteError("A weight is no longer a finite number")
        self._good = take_snapshot(self._engine, self._state)
        self.unsaved = gather(self._good, self._world)

    def write(self, wait: bool = False) -> bool:
        """Write what was kept last, unless `wait` in the background; False if it failed, to be
        retried.
        """
        self._written_at = time.monotonic()
        is_written = self._finish_writing(wait)
        if self.unsaved is not None and self._writing is None:
            self._writing = self.unsaved, self._writer.submit(self._save, self.unsaved)
            self.unsaved = None
            is_written = self._finish_writing(wait)
        return is_written

    def _act(self, agreed: Agreed) -> None:
        if not agreed.is_finite:
            raise NotFiniteError("The training loss is no longer a finite number")
        if agreed.stop:
            self._keep()
            stopped = self._stop_error(agreed.stop)
            with suppress(RuntimeError):
                # Rank 0 may be writing, and a launcher ends all when one ends.
                self._world.barrier()
            raise stopped
        if agreed.is_due:
            self._keep()
            self.write()

    def _stop_error(self, number: int) -> StoppedError:
        logger.info("Asked to stop: writing a checkpoint first.")
        return StoppedError(number, self._folder, is_saved=self.write(wait=True))

    def _finish_writing(self, wait: bool) -> bool:
        if self._writing is None or not (wait or self._writing[1].done()):
            return True
        checkpoint, writing = self._writing
        error, self._writing = writing.exception(), None
        if error is not None:
            self.unsaved = self.unsaved or checkpoint
            logger.warning(f"A checkpoint cannot be written ({error}). The next save tries again.")
        return error is None
