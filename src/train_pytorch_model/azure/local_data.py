"""What a submission uploads from this machine, checked before anything is sent."""

from pathlib import Path

from train_pytorch_model.azure.submission import DATA, Submission
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.inputs import opening
from train_pytorch_model.machine.console import logger


def check_local_data(submission: Submission) -> None:
    """Find mistakes that a node would report only after minutes.

    Data in the cloud is not checked. Raises `InvalidDatasetError`, `InvalidModelDirectoryError`.
    """
    local = {name: path for name, path in submission.data().items() if isinstance(path, Path)}
    model, training, validation = map(local.get, DATA)
    if training and validation and model:
        epochs = submission.parameters.epochs
        inputs = opening.open_training_inputs(model, training, validation, epochs)
        for warning in inputs.warnings:
            logger.warning(warning)
        return
    if model:
        open_model_directory(model, opening.UNTRAINED_MODEL)
    _check_datasets(training, validation)


def _check_datasets(training: Path | None, validation: Path | None) -> None:
    """Open the data sets that are here, together if both are, and warn of what is odd in them."""
    opened: list[ImageDirectory] = []
    if training and validation:
        opened += opening.open_training_datasets(training, validation)
    elif training:
        opened.append(open_image_directory(training, opening.TRAINING_DATASET))
    elif validation:
        opened.append(open_image_directory(validation, opening.VALIDATION_DATASET))
    for images in opened:
        images.require_labels()
        for warning in images.warnings():
            logger.warning(warning)
