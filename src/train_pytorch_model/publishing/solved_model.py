"""A network with a solved classifier of its features as its last layer, as a model directory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.race_record import RaceRecord, write_race
from train_pytorch_model.image_classifier.architectures import head_of
from train_pytorch_model.image_classifier.weights import write_state_dict
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.solved_classifier import Solved


def write_solved_model(
    target: Path,
    inputs: OpenedInputs,
    solved: Solved,
    temperature: float,
    record: RaceRecord,
    probabilities: np.ndarray,
) -> None:
    """Write the network of `inputs`, its logits divided by a temperature, and its race.

    `probabilities` (N, C) are those out of fold of the training and the validation images. Raises
    `OutputDirectoryError`.
    """
    model = inputs.model
    network = build_model(model, inputs.categories)
    head = network.get_submodule(head_of(model.architecture, network))
    with torch.no_grad():
        for parameter, values in ((head.weight, solved.weight), (head.bias, solved.bias)):
            assert isinstance(parameter, torch.Tensor)
            parameter.copy_(torch.from_numpy(values / temperature))
    decided = inputs.recipe
    recipe = replace(model.recipe, framing=decided.framing, mean=decided.mean, std=decided.std)
    meta: dict[str, Any] = {}
    with writing_directory(target, meta, "output") as root:
        write_state_dict(root / MODEL, network.state_dict())
        write_race(root, record, probabilities)
        meta |= write_spec(
            root,
            architecture=model.architecture,
            option=model.option,
            is_pretrained=model.is_pretrained or model.is_trained,
            recipe=recipe,
            categories=inputs.categories,
            weights_licence=model.weights_licence,
        )
