"""The output of a run, before the run starts or goes on."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import parameter, quoted
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.fingerprint import differing_options, name_of
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.replacing import TRAINED, check_replaceable
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER, RunFolder
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.launch import is_alone, rank_of

MAX_SHOWN = 6  # changes in a message


def prepare_output(
    output: Path,
    inputs: OpenedInputs,
    parameters: TrainConfig,
    fresh: bool,
    name: str = OUTPUT_PARAMETER,
    overwrite: bool = False,
    image_changes: Callable[[], str] = str,
) -> bool:
    """Make the output ready for a run; False if this same run has completed it.

    Removes what a complete run has left beside its output, and restores the checkpoint of an
    interrupted one. `name` is the parameter that names the output. Raises `OutputDirectoryError`
    if it cannot be written, or holds something else: another model, unless it is to `overwrite`
    that. `image_changes` tells in which images they differ.
    """
    is_main = rank_of(os.environ) == 0
    run = RunFolder.beside(output)
    fingerprint = inputs.fingerprint(parameters)
    published = trained_directory.published_fingerprint(output)
    if published == fingerprint:
        _log_that_it_is_complete(output, fresh)
        if is_main and run.token:
            run.remove()
        return False

    if published is not None and not overwrite:
        raise _other_model(output, name, changed(published, fingerprint, image_changes()))
    if published is not None:
        check_replaceable(output, name)
    if is_main and not fresh and run.restore_from_output():
        logger.info(f"The checkpoint is the copy in {output}")
    if published is None:
        check_output(
            output, name, by_writing=is_main, token=run.token, kind=TRAINED, overwrite=overwrite
        )
    if is_main:
        _check_run(run, fingerprint, fresh, name)
    _log_what_was_checked(inputs)
    return True


def _check_run(run: RunFolder, fingerprint: Mapping[str, str], fresh: bool, name: str) -> None:
    """Raise `OutputDirectoryError` unless the folder of the run can be written and resumed."""
    if not run.root.exists():
        check_output(run.root, name)
    if not fresh:
        run.check_resumable(fingerprint)


def is_complete_or_replaced(
    output: Path, expected: Mapping[str, str], name: str, fresh: bool, overwrite: bool
) -> bool:
    """Return whether the output holds the model of a run of which these entries are `expected`.

    Raises `OutputDirectoryError` if it holds another model, unless it is to `overwrite` that.
    """
    if is_complete(output, expected, fresh):
        return True
    published = trained_directory.published_fingerprint(output)
    if published is not None and not overwrite:
        same = {entry: published.get(entry, "") for entry in expected}
        raise _other_model(output, name, changed(same, expected, ""))
    return False


def is_complete(output: Path, expected: Mapping[str, str], fresh: bool) -> bool:
    """Return whether the output holds the model of a run of which these entries are `expected`."""
    published = trained_directory.published_fingerprint(output)
    if published is None or not expected.items() <= published.items():
        return False
    _log_that_it_is_complete(output, fresh)
    return True


def changed(before: Mapping[str, str], after: Mapping[str, str], image_changes: str) -> list[str]:
    """Return in what two runs differ, for people: images, then options with both values."""
    changes = []
    directories = []
    explained = set()  # what images and options say better
    if image_changes:
        changes.append(image_changes)
        explained = set(map(name_of, ("training_dataset", "validation_dataset", "archive")))
    if "initial_model" in after:
        explained.add(name_of("untrained_model"))
    for option, value_before, value_after in differing_options(before, after):
        if value_after:
            changes.append(f"{option} {value_before} → {value_after}")
        elif option not in explained:
            directories.append(option)
    if directories:
        changes.append(f"other content of {', '.join(directories)}")
    return changes or ["it is of another version of this program"]


def _other_model(output: Path, name: str, changes: Sequence[str]) -> OutputDirectoryError:
    shown = list(changes[:MAX_SHOWN])
    rest = len(changes) - len(shown)
    if rest:
        shown.append(f"and {rest} more")
    return OutputDirectoryError(
        f"{parameter(name)} {output} holds a finished model, of other images or options:"
        f"\n  {'; '.join(shown)}"
        f"\n{quoted('overwrite')} replaces it once the new one is complete. Or name another"
        f" {quoted(name)}."
    )


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
