"""The MLflow model in a trained directory."""

import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mlflow
import yaml

from train_pytorch_model.image_classifier import predictions
from train_pytorch_model.image_classifier.answers import AnyCategories, OneCategory
from train_pytorch_model.image_classifier.architectures import is_of_timm
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.tracking import load_image_classifier
from train_pytorch_model.tracking.mlflow_logs import hush_mlflow

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

SERVING_PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pillow", "pillow-heif")
# For conda.yaml, from which Azure ML builds the environment of an endpoint. A managed one runs a
# scoring script in it that imports both packages; a batch endpoint adds what it needs. Hosts have
# CPUs, for which the index has a smaller torch; where it cannot be reached, pip takes PyPI's.
# MLflow's own server uses requirements.txt. Azure's pins opentelemetry 1.33: without the last two
# bounds pip downloads 44 newer packages, one after the other, to find those that go with it.
CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"
ENDPOINT_PACKAGES = (
    "azureml-inference-server-http>=1.5,<1.6",
    "azureml-ai-monitoring>=1.0",
    "fastapi<0.142",
    "azure-monitor-opentelemetry-exporter<=1.0.0b40",
)


def save_model(root: Path, spec: ClassifierSpec, example: str, facts: Mapping[str, Any]) -> None:
    """Make the trained directory `root`, which already holds the weights, an MLflow model too.

    MLflow only writes into an empty folder, so it writes to one in `root`, and its files are moved;
    the weights stay where they are and `MLmodel` points to them. `example` is a base64-encoded
    image file, `facts` become the `metadata` of the model. Raises `OSError`.
    """
    # Here, because training starts sooner without.
    import pandas as pd
    from mlflow.models import Model

    hush_mlflow()
    weights = root / "model"
    with _disk_errors(), TemporaryDirectory(dir=root) as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's, about its dependencies
        placeholder = Path(scratch) / weights.name
        placeholder.touch()
        written = Path(scratch) / "mlflow_model"
        mlflow.pyfunc.save_model(
            written,
            loader_module=Path(load_image_classifier.__file__).stem,
            code_paths=[load_image_classifier.__file__, str(Path(predictions.__file__).parent)],
            data_path=str(placeholder),
            model_config=spec.as_mapping(),
            pip_requirements=_requirements(spec.architecture),
            signature=_signature(spec),
            metadata=dict(facts),
            input_example=pd.DataFrame({predictions.IMAGE_COLUMN: [example]}),
        )
        model = Model.load(written)
        model.flavors["python_function"]["data"] = weights.name
        model.model_size_bytes = weights.stat().st_size
        model.save(written / "MLmodel")
        _complete_conda_file(written / "conda.yaml")
        shutil.rmtree(written / "data")  # the placeholder
        for bytecode in list(written.rglob("__pycache__")):
            shutil.rmtree(bytecode)
        for entry in written.iterdir():
            shutil.move(entry, root)


def _requirements(architecture: str) -> list[str]:
    """Return the packages that serve the model, in the versions of this process."""
    packages = list(SERVING_PACKAGES)
    if is_of_timm(architecture):
        packages.append("timm")
    requirements = []
    for name in packages:
        # Without the local part: no registry has `2.15.0+cu130`.
        public_version, _, _ = metadata.version(name).partition("+")
        requirements.append(f"{name}=={public_version}")
    return requirements


def _signature(spec: ClassifierSpec) -> "ModelSignature":
    """Return the columns of the tables that the model takes and gives."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import Array

    # None is required: MLflow would raise before the model can answer a table without images.
    inputs = [
        ColSpec("string", name, required=False)
        for name in (predictions.IMAGE_COLUMN, predictions.NAME_COLUMN)
    ]
    label_types = {OneCategory: DataType.string, AnyCategories: Array(DataType.string)}
    label: Any = label_types[type(spec.answers)]
    outputs = [
        *(ColSpec("double", predictions.PROBABILITY_PREFIX + name) for name in spec.categories),
        ColSpec(label, predictions.LABEL_COLUMN),
        ColSpec("string", predictions.ERROR_COLUMN),
    ]
    params = [
        ParamSpec(predictions.KNOWN_FRACTION, "double", 1.0),
        ParamSpec(predictions.WATCH, "boolean", False),
    ]
    return ModelSignature(Schema([*inputs]), Schema([*outputs]), ParamSchema(params))


def _complete_conda_file(path: Path) -> None:
    """Add what the environment of an endpoint needs besides MLflow's requirements."""
    conda = yaml.safe_load(path.read_text())
    (pip,) = (entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict))
    pip[:] = [CPU_INDEX, *pip, *ENDPOINT_PACKAGES]
    path.write_text(yaml.safe_dump(conda, sort_keys=False))


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise the `OSError`, such as of a full disk, that MLflow has made another error of."""
    try:
        yield
    except mlflow.MlflowException as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
