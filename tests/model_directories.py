"""Model directories for tests, and the module names that the classic components give their networks."""

from pathlib import Path

from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory, write_spec
from train_pytorch_model.formats.writing import write_yaml
from train_pytorch_model.words.recipe import Recipe

RESNET = "azureml.designer.modules.dl.pytorch.initialize_models.vision.classification.resnet"
DENSENET = "azureml.designer.modules.dl.pytorch.initialize_models.vision.classification.densenet"
HALF = (0.5, 0.5, 0.5)


def write_model(
    root: Path,
    recipe: Recipe = Recipe(),  # noqa: B008, frozen
    is_pretrained: bool = False,
    categories: tuple[str, ...] = (),
    architecture: str = "resnet18",
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
    )
    write_yaml(root / "_meta.yaml", meta)
    (root / "model").write_bytes(b"weights")
    return root


def model_of(
    tmp_path: Path, recipe: Recipe, is_pretrained: bool = False, trained: bool = False
) -> ModelDirectory:
    """Write and open a model directory, which has two categories if it is `trained`."""
    categories = ("x", "y") if trained else ()
    return open_model_directory(write_model(tmp_path / "model", recipe, is_pretrained, categories), "Model")
