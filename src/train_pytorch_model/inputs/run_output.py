"""The output of a run, before the run starts or goes on."""

import os
from pathlib import Path

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER, RunFolder
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.launch import is_alone, rank_of


def prepare_output(
    output: Path,
    inputs: OpenedInputs,
    parameters: TrainConfig,
    fresh: bool,
    name: str = OUTPUT_PARAMETER,
) -> bool:
    """Make the output ready for a run; False if this same run has completed it.

    Removes what a complete run has left beside its output, and restores the checkpoint of an
    interrupted one. `name` is the parameter that names the output. Raises `OutputDirectoryError`
    if it cannot be written, or holds something else.
    """
    is_main = rank_of(os.environ) == 0
    run = RunFolder.beside(output)
    fingerprint = inputs.fingerprint(parameters)
    if trained_directory.published_fingerprint(output) == fingerprint:
        _log_that_it_is_complete(output, fresh)
        if is_main and run.token:
            run.remove()
        return False

    if is_main and not fresh and run.restore_from_output():
        logger.info(f"The checkpoint is the copy in {output}")
    check_output(output, name, by_writing=is_main, token=run.token)
    if is_main and not run.root.exists():
        check_output(run.root, name)
    if is_main and not fresh:
        run.check_resumable(fingerprint)
    _log_what_was_checked(inputs)
    return True


def _log_that_it_is_complete(output: Path, fresh: bool) -> None:
    logger.info(f"{output} is already complete, from this same command.")
    if fresh:
        logger.info(
            f"{parameter('fresh')} is for unfinished runs: to train again, name another output."
        )


def _log_what_was_checked(inputs: OpenedInputs) -> None:
    num_unreadable = len(inputs.unreadable_images)
    num_images = len(inputs.training) + len(inputs.validation) + num_unreadable
    unreadable = f", of which {num_unreadable:,} cannot be read" if num_unreadable else ""
    next_step = "; loading PyTorch" if is_alone(os.environ) else ""
    logger.info(f"Checked {num_images:,} training and validation images{unreadable}{next_step}")
