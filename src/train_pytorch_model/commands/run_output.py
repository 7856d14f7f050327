"""The output of a run, before and when it fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import TrainingError, UserError
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER, RunFolder
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.machine.azure_job import is_azure_job
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.launch import is_alone, rank_of


def is_unfinished(
    output: Path,
    inputs: OpenedInputs,
    parameters: TrainConfig,
    fresh: bool,
    name: str = OUTPUT_PARAMETER,
) -> bool:
    """Check that a run can go on; False, cleared, if it is complete.

    Raises `OutputDirectoryError`.
    """
    is_main, run = rank_of(os.environ) == 0, RunFolder.beside(output)
    if trained_directory.published_fingerprint(output) == inputs.fingerprint(parameters):
        logger.info(f"{output} is already complete, from this same command.")
        if fresh:
            logger.info(
                f"{parameter('fresh')} is for unfinished runs: to train again, name another output."
            )
        if is_main and run.token:
            run.remove()
        return False
    if is_main and not fresh and run.restore_from_output():
        logger.info(f"The checkpoint is the copy in {output}")
    check_output(output, name, by_writing=is_main, token=run.token)
    if is_main and not run.root.exists():
        check_output(run.root, name)
    if is_main and not fresh:
        run.check_resumable(inputs.fingerprint(parameters))
    num_images = len(inputs.training) + len(inputs.validation)
    next_step = "; loading PyTorch" if is_alone(os.environ) else ""
    logger.info(f"Checked {num_images:,} images{next_step}")
    return True


@contextmanager
def recorded_failures(output: Path, rank: int) -> Iterator[None]:
    """Record an error that ends the `with` in the run's folder, unless a run, maybe another, writes
    there.
    """
    try:
        yield
    except UserError as error:
        # Of torchrun the status is always 1, and a cluster only says Failed.
        is_hidden = "TORCHELASTIC_RUN_ID" in os.environ or is_azure_job()
        if is_hidden or isinstance(error, TrainingError):
            from train_pytorch_model.formats.run_lock import is_locked

            run = RunFolder.beside(output)
            if not is_locked(run.root):
                run.record_failure(error, rank)
                logger.info(f"The files of the failed run are in {run.root}")
        raise
