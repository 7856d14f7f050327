"""The run of a training, in its folder beside the output."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from train_pytorch_model.config.wording import counted
from train_pytorch_model.formats import run_folder
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.replacing import check_replaceable
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER, RunFolder
from train_pytorch_model.formats.run_lock import run_lock
from train_pytorch_model.machine.azure_job import is_azure_job
from train_pytorch_model.machine.console import logger
from train_pytorch_model.tracking.tracker import earlier_copies, earlier_epochs
from train_pytorch_model.training.checkpoint_files import Checkpoint, save_checkpoint
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.state import State


@dataclass(frozen=True)
class Run:
    """A run that has begun. Only the main process writes its folder."""

    plan: Plan
    output: Path
    folder: RunFolder
    # Identifies this run in what it leaves elsewhere; empty on all processes but the main one.
    token: str
    overwrite: bool = False  # whether the model may take the place of an earlier one

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint. Raises `OSError`; a copy that cannot be written is only a warning."""
        save_checkpoint(self.folder.checkpoints, checkpoint)
        try:
            self.folder.copy_to_output(self.token)
        except OSError as error:
            logger.warning(f"{self.output} does not take a copy of the checkpoints: {error}.")

    def record_history(self, state: State) -> None:
        """Write the metrics of the completed epochs; a failure is only a warning."""
        if not self.plan.world.is_main:
            return
        try:
            self.folder.record_history(self.plan.fingerprint, self.token, state.progress.history)
        except OSError as error:
            # All of them are written again after the next epoch, and with the model.
            logger.warning(
                f"{self.folder.root} cannot be written: {error.strerror}. Training continues."
            )

    def how_to_recover(self, unsaved: Checkpoint | None) -> str:
        """Return what to do about a model that could not be written.

        That is, where its checkpoint is, and what to run. A checkpoint that is `unsaved` is written
        where there is room.
        """
        retry = "The same command writes it without training again."
        if unsaved is None:
            return retry
        with suppress(OSError):  # the partial model has been deleted, so there may be space now
            save_checkpoint(self.folder.checkpoints, unsaved)
            return retry
        with suppress(OSError):
            elsewhere = Path(tempfile.mkdtemp(prefix="train_pytorch_model-"))
            save_checkpoint(elsewhere, unsaved)
            return (
                f"Its checkpoint is in {elsewhere}. Move its two files to"
                f" {self.folder.checkpoints}. {retry}"
            )
        return (
            "Nor could its checkpoint be written, there or to the temporary folder: the training is"
            " lost."
        )


@contextmanager
def open_run(plan: Plan, output: Path, fresh: bool, overwrite: bool = False) -> Iterator[Run]:
    """Begin or continue a run, which alone writes here; collective.

    Raises `OutputDirectoryError`.
    """
    folder = RunFolder.beside(output)
    token = ""
    with ExitStack() as stack:
        if plan.world.is_main:
            stack.enter_context(run_lock(folder.root, logger.info))
            if is_azure_job() and not fresh and not folder.has_checkpoints:
                _recover(folder, plan.fingerprint)
            # Once more: another command may just have written it.
            if overwrite and (output / META).exists():
                check_replaceable(output, OUTPUT_PARAMETER)
            else:
                check_output(output, OUTPUT_PARAMETER, by_writing=False, token=folder.token)
            token = folder.begin(plan.fingerprint, fresh)
        plan.world.barrier()
        yield Run(plan, output, folder, token, overwrite)
    if plan.world.is_main:
        folder.remove()


def _recover(folder: RunFolder, fingerprint: Mapping[str, str]) -> None:
    """Fetch what an earlier start of this Azure ML job, on another machine, has uploaded."""
    num_epochs = earlier_epochs()
    if not num_epochs:
        return
    with tempfile.TemporaryDirectory() as scratch:
        for downloaded in map(RunFolder, earlier_copies(folder.root, Path(scratch))):
            if downloaded.belongs_to(fingerprint) and downloaded.has_checkpoints:
                run_folder.copy_run(downloaded.root, folder.root)
                logger.info("The checkpoint is one that an earlier start of this job has uploaded.")
                return
    logger.warning(
        f"The job's run in MLflow has {counted(num_epochs, 'epoch', 'epochs')} already, but there"
        f" is no checkpoint of this training in {folder.root}, in {folder.output} or among the"
        " run's artifacts. It starts again at epoch 1, and MLflow keeps the first numbers of each"
        " epoch."
    )
