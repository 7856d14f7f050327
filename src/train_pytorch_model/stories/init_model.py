"""Create an untrained model directory: an architecture, initial weights and a recipe."""

from dataclasses import replace
from pathlib import Path

import torch

from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.weights import WeightsError, write_state_dict
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.models import load_weights
from train_pytorch_model.networks.pretrained import complete_recipe, fetch, fetch_from_hub, named_weights
from train_pytorch_model.words.errors import ParameterError, parameter
from train_pytorch_model.words.settings import Recipe, derive_seed

NUM_CLASSES = 1000  # of an untrained directory, as in the designer; training replaces the head


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
        network = architectures.build(architecture, option, NUM_CLASSES)
    except architectures.UnsupportedArchitectureError as error:
        raise ParameterError(f"{parameter('architecture')} {architecture}: {error}") from error
    is_of_timm = architectures.is_of_timm(architecture)
    if is_of_timm:
        recipe = complete_recipe(recipe, architecture, network)
    file, title = weights_file, f"{parameter('weights_file')} {weights_file}"
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
            root, architecture=architecture, option=option, is_pretrained=file is not None, recipe=recipe
        )
