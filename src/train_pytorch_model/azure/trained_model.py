"""The model that a job has trained: downloaded, and described where it is registered."""

import tempfile
from pathlib import Path

from train_pytorch_model.azure.job_folder import MODEL_OUTPUT
from train_pytorch_model.azure.service import Job, Service
from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.errors import ServiceError
from train_pytorch_model.formats.outputs import owning_directory
from train_pytorch_model.formats.reading import META, MalformedFileError, read_yaml
from train_pytorch_model.formats.trained_directory import AZUREML_MODEL, differences
from train_pytorch_model.machine.console import logger


def download(service: Service, job: Job, target: Path, name: str) -> None:
    """Download a complete job's model, whole or not at all; `name` is the target's parameter.

    Raises `OutputDirectoryError`, `ServiceError`.
    """
    with (
        owning_directory(target, name),
        tempfile.TemporaryDirectory(dir=target, prefix=".download-") as temporary,
    ):
        model = service.download(job, MODEL_OUTPUT, Path(temporary))
        problems = differences(model) if (model / META).is_file() else [f"{META} is missing"]
        if problems:
            raise ServiceError(
                f"The downloaded model of job {job.name} is damaged:{bulleted(problems)}"
            )
        # _meta.yaml last: a directory with it is complete.
        for entry in sorted(model.iterdir(), key=lambda path: path.name == META):
            entry.rename(target / entry.name)
    logger.info(f"The trained model is in {target}")


def describe(service: Service, job: Job, name: str, model: Path | None) -> None:
    """Give the registered model its card and tags, which Azure ML does not read.

    They are those of the downloaded `model`, or of the job's. A failure is a warning.
    """
    try:
        with tempfile.TemporaryDirectory() as scratch:
            if model is None:
                model = service.download(job, MODEL_OUTPUT, Path(scratch))
            written = read_yaml(model / AZUREML_MODEL)
        service.describe_model(name, written["description"], written["tags"])
    except (ServiceError, MalformedFileError, KeyError) as error:
        logger.warning(f"The model registered as {name} has no description: {error}")
