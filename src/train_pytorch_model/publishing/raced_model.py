"""The winner of a race as a model directory, with the race and its solved classifier beside it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from train_pytorch_model.formats.model_directory import MODEL, ModelDirectory, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.race_record import RaceArrays, RaceRecord, write_race
from train_pytorch_model.formats.writing import copy_file


def write_raced_model(
    target: Path, model: ModelDirectory, record: RaceRecord, arrays: RaceArrays
) -> None:
    """Write a model as it was before the race, for training to start from, and the race.

    Raises `OutputDirectoryError`.
    """
    recipe = replace(
        model.recipe,
        mean=model.recipe.mean or model.mean,
        std=model.recipe.std or model.std,
    )
    meta: dict[str, Any] = {}
    with writing_directory(target, meta, "output") as root:
        copy_file(model.weights_path, root / MODEL)
        write_race(root, record, arrays)
        meta |= write_spec(
            root,
            architecture=model.architecture,
            option=model.option,
            is_pretrained=model.is_pretrained,
            recipe=recipe,
            categories=model.categories,
            weights_licence=model.weights_licence,
        )
