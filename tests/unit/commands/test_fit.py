"""What `fit` proposes to do next."""

import shutil
from pathlib import Path

from tests.model_directories import write_model
from tests.painting import paint_folders

from train_pytorch_model.commands.fit import reviewing
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.stories.fit import Fitted

RECIPE = Recipe(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def test_what_looks_wrong_is_reviewed_where_the_images_are(tmp_path: Path) -> None:
    model = write_model(tmp_path / "photographs-model", RECIPE, categories=("x", "y"))
    folder = paint_folders(tmp_path / "photographs", 1, size=(8, 8))
    command = f"python -m train_pytorch_model review {model} --dataset {folder}"
    doubts = "# the labels that the model doubts: a page to correct them"
    assert list(reviewing(Fitted(model, None), folder)) == [doubts, command]
    (model / "suspects.csv").touch()
    looks_wrong = "# what looks wrong in the images: a page to correct it"
    assert list(reviewing(Fitted(model, None), folder)) == [looks_wrong, command]

    archive = Path(shutil.make_archive(str(folder), "zip", folder))
    assert list(reviewing(Fitted(model, None), archive))[1:] == [f"{command}-images"]


def test_no_review_is_proposed_that_would_be_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", RECIPE, categories=("x", "y"), thresholds=(0.5, 0.5))
    (model / "suspects.csv").touch()
    assert list(reviewing(Fitted(model, None), tmp_path)) == []
