"""Create an untrained model directory: an architecture, initial weights and a recipe."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.image_classifier.architectures import (
    UnsupportedArchitectureError,
    build,
    head_of,
    is_of_timm,
)
from train_pytorch_model.image_classifier.weights import WeightsError, write_state_dict
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.pretrained import fetch, named_weights
from train_pytorch_model.networks.timm_models import complete_recipe, fetch_from_hub
from train_pytorch_model.networks.weights import load_weights
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
    try:
        network = build(architecture, option, NUM_CLASSES)
    except UnsupportedArchitectureError as error:
        raise ParameterError(f"{parameter('architecture')} {architecture}: {error}") from error
    if is_of_timm(architecture):
        recipe = complete_recipe(recipe, architecture, network)
    if weights_file is not None:
        _load(network, architecture, weights_file, f"{parameter('weights_file')} {weights_file}")
    elif weights_name is not None and is_of_timm(architecture):
        file = fetch_from_hub(network, shows_download)
        _load(network, architecture, file, f"{file}, from the hub,")
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
        loaded = load_weights(network, head_of(architecture, network), path)
    except (OSError, WeightsError) as error:
        raise ParameterError(f"{title} cannot be used for a {architecture}: {error}") from error
    if not all(value.isfinite().all() for value in network.state_dict().values()):
        raise ParameterError(f"{title} cannot be used: it holds numbers that are not finite.")
    logger.info(f"Loaded from {path}: {loaded}")
