"""The MLflow model in a trained directory."""

import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import yaml

from train_pytorch_model.image_classifier import predictions
from train_pytorch_model.image_classifier.architectures import is_of_timm
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.tracking import load_image_classifier

SERVING_PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pillow", "pillow-heif")
# For conda.yaml, from which Azure ML builds the environment of an endpoint. A managed one runs a
# scoring script in it that imports both packages; a batch endpoint adds what it needs. Hosts have
# CPUs, for which the index has a smaller torch; where it cannot be reached, pip takes PyPI's.
# MLflow's own server uses requirements.txt.
CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"
ENDPOINT_PACKAGES = ("azureml-inference-server-http>=1.5", "azureml-ai-monitoring>=1.0")

for name in ("mlflow", "alembic"):  # a new store logs every migration
    logging.getLogger(name).setLevel(logging.WARNING)


def save_model(root: Path, spec: ClassifierSpec, example: str, facts: Mapping[str, Any]) -> None:
    """Make the trained directory `root`, which already holds the weights, an MLflow model too.

    MLflow only writes into an empty folder, so it writes to one in `root`, and its files are moved;
    the weights stay in place and `MLmodel` points to them. `example` is a base64-encoded image
    file, `facts` become the `metadata` of the model. Raises `OSError`.
    """
    # Here, because training starts sooner without.
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    weights = root / "model"
    packages = [*SERVING_PACKAGES, *(["timm"] if is_of_timm(spec.architecture) else [])]
    # Without the local part: no registry has `2.15.0+cu130`.
    versions = {name: metadata.version(name).partition("+")[0] for name in packages}
    inputs = predictions.IMAGE_COLUMN, predictions.NAME_COLUMN
    outputs = [ColSpec("double", predictions.PROBABILITY_PREFIX + name) for name in spec.categories]
    outputs += [
        ColSpec("string", name) for name in (predictions.LABEL_COLUMN, predictions.ERROR_COLUMN)
    ]
    with _disk_errors(), TemporaryDirectory(dir=root) as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's, about its own dependencies
        placeholder = Path(scratch) / weights.name
        placeholder.touch()
        written = Path(scratch) / "mlflow_model"
        mlflow.pyfunc.save_model(
            written,
            loader_module=Path(load_image_classifier.__file__).stem,
            code_paths=[load_image_classifier.__file__, str(Path(predictions.__file__).parent)],
            data_path=str(placeholder),
            model_config=spec.as_mapping(),
            pip_requirements=[f"{name}=={version}" for name, version in versions.items()],
            signature=ModelSignature(
                # None is required: MLflow would raise before the model can answer a table without
                # images.
                inputs=Schema([ColSpec("string", name, required=False) for name in inputs]),
                outputs=Schema([*outputs]),
                params=ParamSchema([ParamSpec(predictions.KNOWN_FRACTION, "double", 1.0)]),
            ),
            metadata=dict(facts),
            input_example=pd.DataFrame({predictions.IMAGE_COLUMN: [example]}),
        )
        model = Model.load(written)
        model.flavors["python_function"]["data"] = weights.name
        model.model_size_bytes = weights.stat().st_size
        model.save(written / "MLmodel")
        conda = yaml.safe_load((written / "conda.yaml").read_text())
        (pip,) = (entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict))
        pip[:] = [CPU_INDEX, *pip, *ENDPOINT_PACKAGES]
        (written / "conda.yaml").write_text(yaml.safe_dump(conda, sort_keys=False))
        for unwanted in (
            written / "data",
            *written.rglob("__pycache__"),
        ):  # the placeholder, bytecode
            shutil.rmtree(unwanted)
        for entry in written.iterdir():
            shutil.move(entry, root)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise the `OSError`, such as of a full disk, that MLflow has made an error of its own of."""
    try:
        yield
    except mlflow.MlflowException as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
