"""Register a trained model in a workspace, with its card and tags."""

from pathlib import Path

from train_pytorch_model.azure.rules import check_model_name
from train_pytorch_model.azure.service import Service
from train_pytorch_model.azure.workspace import Workspace
from train_pytorch_model.errors import InvalidModelDirectoryError
from train_pytorch_model.formats.trained_directory import AZUREML_MODEL
from train_pytorch_model.machine.console import logger


def register_model(model: Path, name: str, workspace: Workspace) -> str:
    """Upload a trained model directory; return the registered model, as `azureml:NAME:VERSION`.

    Raises `ParameterError`, `ServiceError`, `InvalidModelDirectoryError`.
    """
    check_model_name(name, "name")
    description = model / AZUREML_MODEL
    if not description.is_file():
        raise InvalidModelDirectoryError(
            str(model),
            f"{AZUREML_MODEL} is missing, which describes a model that `train` or `fit` has"
            " written.",
            "The designer's models are registered by the designer.",
        )
    reference = Service(workspace).register_model(description, name)
    logger.info(f"The model is registered as {reference}")
    return reference
