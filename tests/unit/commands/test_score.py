"""What `score` refuses when it knows the model, and what it says in the end."""

import logging
from pathlib import Path

import numpy as np
import pytest
from tests.model_directories import HALF, write_model
from tests.painting import paint_folders

from train_pytorch_model.commands.score import Score
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.image_classifier.answers import AnyCategories
from train_pytorch_model.image_classifier.predictions import KNOWN, known_json
from train_pytorch_model.stories.score import ScoreSummary


def test_a_model_with_a_category_called_unknown_does_not_answer_unknown(tmp_path: Path) -> None:
    recipe = Recipe(image_size=32, mean=HALF, std=HALF)
    model = write_model(tmp_path / "model", recipe, categories=("blue", "unknown"))
    (model / KNOWN).write_text(known_json(np.linspace(0, 1, 9)), encoding="ascii")
    images = paint_folders(tmp_path / "images", 1)
    score = Score(
        trained_model=model, dataset=images, scored_dataset=tmp_path / "scores", unknown=True
    )
    with pytest.raises(ParameterError, match="has a category called `unknown`"):
        score.run()
    assert not (tmp_path / "scores").exists()


def test_of_lists_of_categories_the_exact_match_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    summary = ScoreSummary(AnyCategories.measure, 4, labelled=3, correct=2, unknown={"emu": 1})
    score = Score(trained_model=tmp_path, dataset=tmp_path, scored_dataset=tmp_path / "scores")
    with caplog.at_level(logging.INFO, "train_pytorch_model"):
        score._log(summary)
    assert "Exact match 66.7%: 2 of 3 images" in caplog.text
    assert "that the model does not know, and not part of the exact match" in caplog.text
    assert "ccuracy" not in caplog.text
