"""Create an untrained model directory: an architecture, initial weights and a recipe."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.image_classifier.weights import WeightsError, write_state_dict
from train_pytorch_model.networks.models import load_weights
from train_pytorch_model.networks.pretrained import fetch, named_weights
from train_pytorch_model.words.errors import ParameterError
from train_pytorch_model.words.recipe import Recipe
from train_pytorch_model.words.seeds import derive_seed
from train_pytorch_model.words.wording import parameter

NUM_CLASSES = 1000  # of an untrained directory, as in the designer; training replaces the head
OUTPUT = "output"


def initialize(
    architecture: str,
    option: bool,
    weights_name: str | None,
    weights_file: Path | None,
    seed: int,
    recipe: Recipe,
    output: Path,
    shows_download: bool = True,
) -> None:
    """Write the untrained model directory; `shows_download` prints the progress of a download.

    Raises `FailedToDownloadFilesError`, `ParameterError` for a weights file that does not fit,
    `OutputDirectoryError`.
    """
    torch.manual_seed(derive_seed(seed, "weights"))
    network = build(architecture, option, NUM_CLASSES)
    if weights_file is not None:
        _load(network, architecture, weights_file, f"{parameter('weights_file')} {weights_file}")
    elif weights_name is not None:
        weights = named_weights(architecture, weights_name)
        file = fetch(weights, shows_download)
        _load(network, architecture, file, f"{file}, which holds the weights {weights.name},")
        if recipe.mean is None:  # as these weights were trained; not always ImageNet's
            preset = weights.transforms()
            recipe = replace(recipe, mean=tuple(preset.mean), std=tuple(preset.std))
    is_pretrained = weights_name is not None or weights_file is not None
    meta: dict[str, object] = {}
    with writing_directory(output, meta, OUTPUT) as root:
        write_state_dict(root / MODEL, network.state_dict())
        meta |= write_spec(
            root,
            architecture=architecture,
            option=option,
            is_pretrained=is_pretrained,
            recipe=recipe,
        )


def _load(network: nn.Module, architecture: str, path: Path, title: str) -> None:
    try:
        load_weights(network, architecture, path)
    except (OSError, WeightsError) as error:
        raise ParameterError(f"{title} cannot be used for a {architecture}: {error}") from error
