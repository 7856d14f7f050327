"""What timm knows about its own networks: the images they were made for, and where their weights are."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.pretrained import download_error
from train_pytorch_model.words.errors import ParameterError, parameter
from train_pytorch_model.words.settings import Recipe

WEIGHTS = "model.safetensors"  # in a repository of the hub


def complete_recipe(recipe: Recipe, architecture: str, network: nn.Module) -> Recipe:
    """The recipe with timm's image size and normalization, unless it names others.

    Raises `ParameterError` for a size that the network cannot take.
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


def fetch_from_hub(network: nn.Module, is_shown: bool) -> Path:
    """Return the file of the network's weights in the hub's cache, downloaded unless it is there.

    `is_shown` prints the progress of a download. Raises `FailedToDownloadFilesError`, and
    `ParameterError` if timm names no such file.
    """
    import huggingface_hub

    config: Any = network.pretrained_cfg
    repository = config.get("hf_hub_id")
    if not repository or config.get("custom_load"):
        raise ParameterError(
            f"timm names no {WEIGHTS} on the hub for {config['architecture']}. Name a file with"
            f" {parameter('weights_file')}, or another tag: timm:NAME.TAG."
        )
    cached = huggingface_hub.try_to_load_from_cache(repository, WEIGHTS)
    if isinstance(cached, str):
        return Path(cached)
    logger.info(f"Downloading {repository}/{WEIGHTS}")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # no line for each attempt
    if not is_shown:
        huggingface_hub.utils.disable_progress_bars()
    try:
        return Path(huggingface_hub.hf_hub_download(repository, WEIGHTS))
    except Exception as error:  # of the hub's client, and of the HTTP client that it uses
        raise download_error(f"{repository}/{WEIGHTS}", error) from error
