"""Create an untrained model directory: an architecture, initial weights and a recipe.

Pretrained weights of torchvision and timm are downloaded unless they are in their caches.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.weights import WeightsError, write_state_dict
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.download import fetch, fetch_from_hub, named_weights
from train_pytorch_model.networks.load_weights import load_weights

NUM_CLASSES = 1000  # of an untrained directory, as in the designer; training replaces the head


def initialize(options: ModelOptions, seed: int, output: Path, shows_download: bool = True) -> None:
    """Write the untrained model directory; `shows_download` prints the progress of a download.

    Raises `FailedToDownloadFilesError`, `ParameterError` for a weights file that does not fit,
    `OutputDirectoryError`.
    """
    architecture, recipe = options.architecture, options.recipe
    option = (
        options.zero_init_residual or options.memory_efficient
    )  # as checked, the architecture's own
    weights_name = "DEFAULT" if options.pretrained else options.weights
    torch.manual_seed(derive_seed(seed, "weights"))
    try:
        network = architectures.build(architecture, option, NUM_CLASSES)
    except architectures.UnsupportedArchitectureError as error:
        raise ParameterError(f"{parameter('architecture')} {architecture}: {error}") from error
    is_of_timm = architectures.is_of_timm(architecture)
    if is_of_timm:
        recipe = complete_recipe(recipe, architecture, network)
    file, title = options.weights_file, f"{parameter('weights_file')} {options.weights_file}"
    if file is None and weights_name is not None and is_of_timm:
        file = fetch_from_hub(network, shows_download)
        title = f"{file}, from the hub,"
    elif file is None and weights_name is not None:
        weights = named_weights(architecture, weights_name)
        file = fetch(weights, shows_download)
        title = f"{file}, which holds the weights {weights.name},"
        if recipe.mean is None:  # as these weights were trained; not always ImageNet's
            preset = weights.transforms()
            recipe = replace(recipe, mean=tuple(preset.mean), std=tuple(preset.std))
    if file is not None:
        try:
            loaded = load_weights(network, architectures.head_of(architecture, network), file)
        except (OSError, WeightsError) as error:
            raise ParameterError(f"{title} cannot be used for a {architecture}: {error}") from error
        if not all(value.isfinite().all() for value in network.state_dict().values()):
            raise ParameterError(f"{title} cannot be used: it holds numbers that are not finite.")
        logger.info(f"Loaded from {file}: {loaded}")
    meta: dict[str, object] = {}
    with writing_directory(output, meta, "output") as root:
        write_state_dict(root / MODEL, network.state_dict())
        meta |= write_spec(
            root,
            architecture=architecture,
            option=option,
            is_pretrained=file is not None,
            recipe=recipe,
        )


def complete_recipe(recipe: Recipe, architecture: str, network: nn.Module) -> Recipe:
    """The recipe with timm's image size and normalization, unless it has others.

    Raises `ParameterError`.
    """
    config: Any = network.pretrained_cfg
    _, height, width = config["input_size"]
    size = height if height == width else (height, width)
    if config["fixed_input_size"]:
        for name, asked in recipe.sizes_other_than(size).items():
            raise ParameterError(
                f"{parameter(name)} {asked} does not fit: a {architecture} takes {size} px only."
            )
    if recipe.image_size is None:
        recipe = replace(recipe, image_size=size)
    if recipe.mean is None:
        recipe = replace(recipe, mean=tuple(config["mean"]), std=tuple(config["std"]))
    return recipe
