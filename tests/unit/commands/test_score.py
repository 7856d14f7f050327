"""What `score` refuses when it knows the model."""

from pathlib import Path

import numpy as np
import pytest
from tests.model_directories import HALF, write_model
from tests.painting import paint_folders

from train_pytorch_model.commands.score import Score
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.image_classifier.predictions import KNOWN, known_json


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
