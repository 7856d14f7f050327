"""What `evaluate` gives its story."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.model_directories import HALF, write_model
from tests.painting import paint_folders

from train_pytorch_model.commands.evaluate import Evaluate
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.distributed.processes import on_this_host
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.stories import evaluate as story


def test_the_other_model_is_read_where_this_host_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = paint_folders(tmp_path / "images", 1)
    recipe = Recipe(image_size=32, mean=HALF, std=HALF)
    models = [
        write_model(tmp_path / name, recipe, categories=("blue", "green", "red"))
        for name in ("model", "other")
    ]
    given: list[ScoringInputs] = []
    monkeypatch.setattr(story, "evaluate", lambda inputs, *_, **__: given.append(inputs))
    command = Evaluate(
        trained_model=models[0], dataset=images, output=tmp_path / "output", against=models[1]
    )
    opened = command._open_inputs(models[0], images)  # by rank 0
    here = tmp_path / "mounted"
    inputs = replace(opened, images=on_this_host(opened.images, here / "images"))
    world = World(1, 2, 0, 1, torch.device("cpu"))
    replace(command, against=here / "other")._evaluate(inputs, world)
    (against,) = [inputs.against for inputs in given]
    assert against is not None
    assert against.model.root == here / "other"
    assert against.images.root == here / "images"
