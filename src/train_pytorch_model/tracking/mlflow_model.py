"""The trained directory as an MLflow model."""

import shutil
import warnings
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from train_pytorch_model.image_classifier import scored_columns
from train_pytorch_model.image_classifier.scored_columns import IMAGE_COLUMN, LABEL_COLUMN, PROBABILITY_PREFIX
from train_pytorch_model.image_classifier.spec import ClassifierSpec

SERVING_PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pillow")


def save_model(root: Path, spec: ClassifierSpec, example: str) -> None:
    """Make the trained directory `root`, which already holds the weights, an MLflow model too.

    MLflow only writes into an empty folder, so it writes elsewhere and its files are copied here; the weights
    stay in place and `MLmodel` points to them. `example` is a base64-encoded image file.
    """
    # Here, because training starts sooner without: it takes a second, and the tracker's thread does it then.
    import mlflow
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema

    weights = root / "model"
    outputs = [ColSpec("double", PROBABILITY_PREFIX + name) for name in spec.categories]
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's, about its own dependencies
        placeholder = Path(scratch) / weights.name
        placeholder.touch()
        written = Path(scratch) / "mlflow_model"
        mlflow.pyfunc.save_model(
            written,
            loader_module="image_classifier.serving",
            code_paths=[str(Path(scored_columns.__file__).parent)],
            data_path=str(placeholder),
            model_config=spec.as_mapping(),
            pip_requirements=[f"{name}=={_public_version(name)}" for name in SERVING_PACKAGES],
            signature=ModelSignature(
                inputs=Schema([ColSpec("string", IMAGE_COLUMN)]),
                outputs=Schema([*outputs, ColSpec("string", LABEL_COLUMN)]),
            ),
            input_example=pd.DataFrame({IMAGE_COLUMN: [example]}),
        )
        model = Model.load(written)
        model.flavors["python_function"]["data"] = weights.name
        model.model_size_bytes = weights.stat().st_size
        model.save(written / "MLmodel")
        for unwanted in (written / "data", *written.rglob("__pycache__")):  # the placeholder, bytecode
            shutil.rmtree(unwanted)
        for entry in written.iterdir():
            shutil.move(entry, root)


def _public_version(package: str) -> str:
    """The version without its local part: no registry has `2.15.0+cu130`."""
    return version(package).partition("+")[0]
