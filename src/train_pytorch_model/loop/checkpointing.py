"""When a run is saved, when it stops, and how it goes on; all processes alike."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from train_pytorch_model.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from train_pytorch_model.distributed import LOST_S, World, is_lost_connection
from train_pytorch_model.loop.agreement import Agreed, Agreement
from train_pytorch_model.loop.passes import NotFiniteError
from train_pytorch_model.loop.stop_requests import StoppedError, StopRequests
from train_pytorch_model.loop.train_state import Snapshot, TrainState, gather, scatter
from train_pytorch_model.progress import Voice

EVERY_S = 300.0
# After an epoch: a kill loses half a minute more at most than with a checkpoint after each. Writing one takes
# 0.2 s of the steps beside it: 6 % of an epoch of 16 small steps.
EPOCHS_EVERY_S = 30.0
UPLOADED_EVERY_S = 900.0  # where the folder is uploaded as it changes; then also after epochs


class Checkpointer:
    """Keeps the last good state of a run: in memory on every process, in files of the main one.

    `surroundings` are what a result depends on bit by bit besides the state, such as the number of processes.
    """

    def __init__(
        self,
        folder: Path,
        every_s: float,
        surroundings: Mapping[str, str],
        state: TrainState,
        world: World,
        stop: StopRequests,
        voice: Voice,
    ) -> None:
        self._folder, self._every_s, self._surroundings = folder, every_s, surroundings
        self._state, self._world, self._stop, self._voice = state, world, stop, voice
        self._agreement = Agreement(world)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._in_writing: Checkpoint | None = None
        self._unwritten: Checkpoint | None = None
        self._written_at = time.monotonic()
        self._stepped_at: float | None = None
        self.good: Snapshot = state.snapshot()
        """The state that was kept last, as this process has it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, RuntimeError) and is_lost_connection(error):
                self._after_lost_connection()
            elif isinstance(error, Exception):
                self.write(wait=True)
        finally:
            self._writer.shutdown(wait=True)

    @property
    def unsaved(self) -> Checkpoint | None:
        """What was kept last, if it could not be written."""
        return self._unwritten

    def resume(self) -> bool:
        """Bring the state to the newest checkpoint on all processes; False where there is none.

        Raises `CheckpointError`.
        """
        checkpoint = None
        if self._world.is_main:
            checkpoint, problems = load_checkpoint(self._folder, self._state.check)
            for problem in problems:
                self._voice.warn(f"A damaged checkpoint is passed over: {problem}")
        snapshot = scatter(checkpoint, self._world)
        if snapshot is None:
            return False
        self._state.restore(snapshot)
        self.good = self._state.snapshot()
        before = snapshot.values["surroundings"]
        for name, value in self._surroundings.items():
            if before.get(name) != value:
                self._voice.warn(
                    f"The run was begun with {name} {before.get(name)} and goes on with {value}: it will not"
                    " end bit for bit as if it had never been interrupted."
                )
        return True

    def after_step(self, loss_sum: Tensor) -> None:
        """Agree with the other processes to go on, to save, to stop, or to go back.

        Raises `NotFiniteError`, `StoppedError`.
        """
        now = time.monotonic()
        if self._stepped_at is not None:
            self._stop.longest_step_s = max(self._stop.longest_step_s, now - self._stepped_at)
        self._stepped_at = now
        is_due = self._world.is_main and now - self._written_at >= self._every_s
        self._act(self._agreement.exchange(loss_sum, is_due, self._stop.signal or 0))

    def after_training(self) -> None:
        """Agree once more at the end of an epoch's training; validation is then a state to come back to."""
        self._act(self._agreement.finish())
        self.keep()
        self._stepped_at = None  # the validation is not part of a step

    def before_validation_batch(self) -> None:
        """Stop without asking the others, who may have no batch: what was kept is enough.

        Raises `StoppedError`.
        """
        if self._stop.signal:
            raise self._stopped(self._stop.signal)

    def keep(self) -> None:
        """Take the state as it is for the last good one. Raises `NotFiniteError` where it is not good."""
        bad = torch.tensor([float(not self._state.is_finite())], device=self._world.device)
        if self._world.max(bad).item():  # on any process: batch norm statistics differ
            raise NotFiniteError("A weight is no longer a finite number")
        self.good = self._state.snapshot()
        checkpoint = gather(self.good, self._world)
        if checkpoint is not None:
            surroundings = {"surroundings": dict(self._surroundings)}
            self._unwritten = replace(checkpoint, values={**checkpoint.values, **surroundings})

    def write(self, wait: bool = False) -> bool:
        """Write what was kept last, in the background unless one waits; False where that has failed.

        What fails is tried again the next time: the training goes on, for its result does not come from here.
        """
        self._written_at = time.monotonic()
        is_written = self._finish_writing(wait)
        if self._unwritten is not None and self._writing is None:
            self._in_writing, self._unwritten = self._unwritten, None
            self._writing = self._writer.submit(save_checkpoint, self._folder, self._in_writing)
            is_written = self._finish_writing(wait)
        return is_written

    def write_epoch(self, is_last: bool) -> None:
        """Write the state after an epoch, unless one was written a moment ago."""
        is_uploaded = self._every_s >= UPLOADED_EVERY_S
        apart_s = self._every_s if is_uploaded else min(self._every_s, EPOCHS_EVERY_S)
        if is_last or time.monotonic() - self._written_at >= apart_s:
            self.write(wait=is_last)

    def _act(self, agreed: Agreed) -> None:
        if not agreed.is_finite:
            raise NotFiniteError("The training loss is no longer a finite number")
        if agreed.stop:
            self.keep()
            stopped = self._stopped(agreed.stop)
            with suppress(RuntimeError):
                self._world.barrier()  # rank 0 may be writing, and a launcher ends all once one has ended
            raise stopped
        if agreed.is_due:
            self.keep()
            self.write()

    def _after_lost_connection(self) -> None:
        """Save what was kept before the other processes were lost.

        Raises `StoppedError` where they have stopped, and this one is asked to as well, a moment later maybe.
        """
        self._world.missing()  # asked now: while this one saves, those that are not lost may end
        if self._stop.wait(LOST_S) and self._stop.signal:
            raise self._stopped(self._stop.signal)
        self.write(wait=True)

    def _stopped(self, number: int) -> StoppedError:
        self._voice.say("Asked to stop: a checkpoint is written first.")
        return StoppedError(number, self._folder, is_saved=self.write(wait=True))

    def _finish_writing(self, wait: bool) -> bool:
        if self._writing is None or not (wait or self._writing.done()):
            return True
        error = self._writing.exception()
        if error is not None:
            self._unwritten = self._unwritten or self._in_writing
        self._writing = self._in_writing = None
        if error is not None:
            self._voice.warn(f"A checkpoint cannot be written ({error}). The next time it is tried again.")
        return error is None
