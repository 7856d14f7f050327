"""Model directories for tests, and the module names that the classic components give their
networks.
"""

from pathlib import Path
from typing import Any

from tests.painting import paint_folders
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.formats.model_directory import (
    ModelDirectory,
    open_model_directory,
    write_spec,
)
from train_pytorch_model.formats.writing import write_yaml
from train_pytorch_model.image_classifier.answers import answers_by
from train_pytorch_model.inputs.opening import OpenedInputs, open_training_inputs

RESNET = "azureml.designer.modules.dl.pytorch.initialize_models.vision.classification.resnet"
DENSENET = "azureml.designer.modules.dl.pytorch.initialize_models.vision.classification.densenet"
HALF = (0.5, 0.5, 0.5)


def write_model(
    root: Path,
    recipe: Recipe = Recipe(),  # noqa: B008, frozen
    is_pretrained: bool = False,
    categories: tuple[str, ...] = (),
    architecture: str = "resnet18",
    thresholds: tuple[float, ...] | None = None,
) -> Path:
    """Write a model directory with placeholder weights."""
    root.mkdir(parents=True)
    meta = write_spec(
        root,
        architecture=architecture,
        option=False,
        is_pretrained=is_pretrained,
        recipe=recipe,
        categories=categories,
        answers=answers_by(thresholds),
    )
    write_yaml(root / "_meta.yaml", meta)
    (root / "model").write_bytes(b"weights")
    return root


def model_of(
    tmp_path: Path, recipe: Recipe, is_pretrained: bool = False, trained: bool = False
) -> ModelDirectory:
    """Write and open a model directory, which has two categories if it is `trained`."""
    categories = ("x", "y") if trained else ()
    return open_model_directory(
        write_model(tmp_path / "model", recipe, is_pretrained, categories), "Model"
    )


def open_painted(tmp_path: Path, **recipe: Any) -> OpenedInputs:
    """Training inputs with a model of that recipe; paints the datasets that do not exist yet."""
    model = write_model(tmp_path / "model", Recipe(**recipe))
    for first, name in enumerate(("training", "validation")):
        if not (tmp_path / name).exists():
            paint_folders(tmp_path / name, per_category=3, first=10 * first)
    return open_training_inputs(model, tmp_path / "training", tmp_path / "validation")
