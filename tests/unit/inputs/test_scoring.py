"""The inputs of scoring: a trained model, the size of its images, and images of any kind."""

from pathlib import Path

import pytest
from tests.model_directories import HALF, write_model
from tests.painting import paint, paint_folders

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import (
    InvalidModelDirectoryError,
    ParameterError,
)
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.scoring import open_scoring_inputs, open_trained_model


def test_an_untrained_model_cannot_score(tmp_path: Path) -> None:
    data = paint_folders(tmp_path / "data", 1)
    with pytest.raises(InvalidModelDirectoryError) as raised:
        open_scoring_inputs(write_model(tmp_path / "model"), data)
    assert str(raised.value) == (
        f'ModelDirectory "Trained model {tmp_path / "model"}" is invalid. Reason: it is not'
        f" trained:"
        " model_spec.yaml names no label_map_file. Train it first, with `train`."
    )


def test_a_trained_model_scores_images_with_and_without_categories(tmp_path: Path) -> None:
    recipe = Recipe(
        image_size=(16, 24), crop_fraction=0.5, augmentation="none", mean=HALF, std=HALF
    )
    model = write_model(tmp_path / "model", recipe, categories=("x", "y"))
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        paint("blue", 0, (640, 480)).save(tmp_path / f"data/{name}.png")
    (tmp_path / "data/c.png").touch()
    inputs = open_scoring_inputs(model, tmp_path / "data")
    assert inputs.spec.categories == ("x", "y")
    assert inputs.spec.framing == Framing(16, 24, 0.5)
    assert len(inputs.images) == 2
    assert [image.file_name for image in inputs.unreadable_images] == ["c.png"]


def test_a_designer_model_scores_images_at_their_own_size(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", Recipe(mean=HALF, std=HALF), categories=("x", "y"))
    (tmp_path / "data").mkdir()
    paint("blue", 0, (640, 480)).save(tmp_path / "data/a.png")
    inputs = open_scoring_inputs(model, tmp_path / "data")
    assert inputs.spec.framing == Framing(480, 640, 1.0)
    assert inputs.size_reason == "the size of the images"


# ── A trained model without images ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("image_size", [None, 24])
def test_a_trained_model_records_its_image_size(tmp_path: Path, image_size: int | None) -> None:
    recipe = Recipe(image_size=(24, 24), crop_fraction=0.5, mean=HALF, std=HALF)
    root = write_model(tmp_path / "model", recipe, categories=("x", "y"))
    model, spec = open_trained_model(root, image_size)
    assert model.root == root
    assert spec.framing == Framing(24, 24, 0.5)
    assert spec.categories == ("x", "y")


def test_a_size_other_than_the_models_is_refused(tmp_path: Path) -> None:
    recipe = Recipe(image_size=24, mean=HALF, std=HALF)
    root = write_model(tmp_path / "model", recipe, categories=("x", "y"))
    with pytest.raises(ParameterError, match=r"^--image-size is 32; the model's is 24\.$"):
        open_trained_model(root, 32)


def test_a_designer_model_needs_an_image_size(tmp_path: Path) -> None:
    root = write_model(tmp_path / "model", Recipe(mean=HALF, std=HALF), categories=("x", "y"))
    assert open_trained_model(root, 400)[1].framing == Framing(400, 400, 1.0)
    with pytest.raises(
        ParameterError,
        match=r"model does not record its image size; .* Give it with --image-size\.$",
    ):
        open_trained_model(root, None)


@pytest.mark.parametrize("image_size", [0, -1, 7, 4097])
def test_a_size_out_of_range_is_refused(tmp_path: Path, image_size: int) -> None:
    root = write_model(tmp_path / "model", Recipe(mean=HALF, std=HALF), categories=("x", "y"))
    with pytest.raises(ParameterError, match=rf"should be from 8 to 4096; it is {image_size}\.$"):
        open_trained_model(root, image_size)
