"""The record that a failed run leaves in its folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from train_pytorch_model.errors import FailedWorkersError, TrainingError, UserError
from train_pytorch_model.formats.run_folder import RunFolder
from train_pytorch_model.machine.azure_job import is_azure_job
from train_pytorch_model.machine.console import logger


@contextmanager
def recorded_failures(output: Path, rank: int) -> Iterator[None]:
    """Record an error that ends the `with` in the folder of the output's run.

    A run that writes there, this one or another, is not disturbed.
    """
    try:
        yield
    except FailedWorkersError:
        raise  # they have recorded their own
    except UserError as error:
        # Of torchrun the status is always 1, and a cluster only says Failed.
        is_hidden = "TORCHELASTIC_RUN_ID" in os.environ or is_azure_job()
        if is_hidden or isinstance(error, TrainingError):
            _record(error, output, rank)
        raise


def _record(error: UserError, output: Path, rank: int) -> None:
    from train_pytorch_model.formats.run_lock import is_locked  # loads more than most verbs need

    run = RunFolder.beside(output)
    if not is_locked(run.root):
        run.record_failure(error, rank)
        logger.info(f"The files of the failed run are in {run.root}")
