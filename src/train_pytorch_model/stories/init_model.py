"""Create an untrained model directory: an architecture, initial weights and a recipe.

Pretrained weights of torchvision and timm are downloaded unless they are in their caches.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.recipe import Recipe, sides
from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.weights import WeightsError, write_state_dict
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.download import fetch, fetch_from_hub, named_weights
from train_pytorch_model.networks.dry_runs import WithoutMemory
from train_pytorch_model.networks.image_sizes import problem_with_size, sides_near
from train_pytorch_model.networks.licences import describe_licence, is_restricted, licence_of
from train_pytorch_model.networks.load_weights import load_weights

Colour = tuple[float, float, float]

NUM_CLASSES = 1000  # of an untrained directory, as in the designer; training replaces the head


def initialize(
    options: ModelOptions,
    seed: int,
    output: Path,
    shows_download: bool = True,
    overwrite: bool = False,
) -> None:
    """Write the untrained model directory; `shows_download` prints the progress of a download.

    Raises `FailedToDownloadFilesError`, `ParameterError` for a weights file that does not fit,
    `OutputDirectoryError`.
    """
    architecture = options.architecture
    recipe = options.recipe
    # As checked, the architecture's own.
    option = options.zero_init_residual or options.memory_efficient

    torch.manual_seed(derive_seed(seed, "weights"))
    network = _build(architecture, option, recipe)
    if architectures.is_of_timm(architecture):
        recipe = _complete_recipe(recipe, architecture, network)

    weights = _weights_of(options, network, shows_download)
    if weights is not None:
        if weights.normalization is not None and recipe.mean is None:
            mean, std = weights.normalization
            recipe = replace(recipe, mean=mean, std=std)
        _load(weights, architecture, network)

    meta: dict[str, object] = {}
    with writing_directory(output, meta, "output", overwrite=overwrite) as root:
        write_state_dict(root / MODEL, network.state_dict())
        meta |= write_spec(
            root,
            architecture=architecture,
            option=option,
            is_pretrained=weights is not None,
            recipe=recipe,
            weights_licence=weights.licence if weights else "",
        )


def _build(architecture: str, option: bool, recipe: Recipe) -> nn.Module:
    """Return the network for images of the recipe's size. Raises `ParameterError`."""
    try:
        return architectures.build(architecture, option, NUM_CLASSES, recipe.image_sides)
    except architectures.UnsupportedArchitectureError as error:
        try:
            with WithoutMemory():
                architectures.build(architecture, option, NUM_CLASSES)
        except architectures.UnsupportedArchitectureError:  # whatever the size
            raise ParameterError(f"{parameter('architecture')} {architecture}: {error}") from error
        raise _unfit_size(architecture, recipe, str(error)) from error


@dataclass(frozen=True)
class _Weights:
    """A file with initial weights."""

    file: Path
    title: str  # as errors name it
    # The mean and std of each colour with which they were trained, not always ImageNet's.
    normalization: tuple[Colour, Colour] | None = None
    licence: str = ""  # empty if it is not known


def _weights_of(options: ModelOptions, network: nn.Module, shows_download: bool) -> _Weights | None:
    """Return the weights that the options ask for, downloaded if necessary; None for random ones.

    Raises `FailedToDownloadFilesError`, `ParameterError`.
    """
    file = options.weights_file
    if file is not None:
        return _Weights(file, f"{parameter('weights_file')} {file}")
    name = "DEFAULT" if options.pretrained else options.weights
    if name is None:
        return None
    if architectures.is_of_timm(options.architecture):
        file = fetch_from_hub(network, shows_download)
        licence = licence_of(options.architecture)
        return _Weights(file, f"{file}, from the hub,", licence=licence)
    weights = named_weights(options.architecture, name)
    file = fetch(weights, shows_download)
    preset = weights.transforms()
    return _Weights(
        file,
        f"{file}, which holds the weights {weights.name},",
        normalization=(tuple(preset.mean), tuple(preset.std)),
        licence=licence_of(options.architecture, weights),
    )


def _load(weights: _Weights, architecture: str, network: nn.Module) -> None:
    """Load the weights into the network. Raises `ParameterError` if they cannot be used."""
    head = architectures.head_of(architecture, network)
    try:
        loaded = load_weights(network, head, weights.file)
    except (OSError, WeightsError) as error:
        raise ParameterError(
            f"{weights.title} cannot be used for a {architecture}: {error}"
            f"{_about_size(architecture, network)}"
        ) from error
    if not all(value.isfinite().all() for value in network.state_dict().values()):
        raise ParameterError(
            f"{weights.title} cannot be used: it holds numbers that are not finite."
        )
    logger.info(f"Loaded from {weights.file}: {loaded}")
    if is_restricted(weights.licence):
        logger.warning(describe_licence(weights.licence))
    elif weights.licence:
        logger.info(describe_licence(weights.licence))


def _about_size(architecture: str, network: nn.Module) -> str:
    """Return that an image size may be why weights do not fit, as a sentence; empty if not."""
    if not (architectures.is_of_timm(architecture) and architectures.has_fixed_size(network)):
        return ""
    return (
        " Weights of another image size fit if timm can resample them, which it cannot for all of"
        f" its networks: {parameter('image_size')} should be the size that these are of."
    )


def _complete_recipe(recipe: Recipe, architecture: str, network: nn.Module) -> Recipe:
    """Return the recipe with timm's image size and normalization, unless it has others.

    Raises `ParameterError`.
    """
    config: Any = network.pretrained_cfg
    _, height, width = config["input_size"]
    size = recipe.image_size or (height if height == width else (height, width))
    if architectures.has_fixed_size(network):
        _check_sizes(architecture, network, recipe, size)
    recipe = replace(recipe, image_size=size)
    if recipe.mean is None:
        recipe = replace(recipe, mean=tuple(config["mean"]), std=tuple(config["std"]))
    return recipe


def _check_sizes(
    architecture: str, network: nn.Module, recipe: Recipe, size: int | tuple[int, int]
) -> None:
    """Raise `ParameterError` unless a network, built for a size, takes it, and no other is named.

    The network is one of timm with a fixed size.
    """
    for name, value in recipe.sizes_other_than(size).items():
        raise ParameterError(
            f"{parameter(name)} {value} does not fit: a {architecture} trains at the size at which"
            f" it predicts, which is {size} px. Give {parameter('image_size')} {value}, or no"
            f" {parameter(name)}."
        )
    problem = problem_with_size(network, sides(size))
    if problem:
        raise _unfit_size(architecture, recipe, problem)


def _unfit_size(architecture: str, recipe: Recipe, problem: str) -> ParameterError:
    """Return the error about an image size for which timm has no such network."""
    size = recipe.image_size or 0
    fitting = " and ".join(map(str, sides_near(architecture, max(sides(size)))))
    instead = f" The nearest sides that do are {fitting} px." if fitting else ""
    return ParameterError(
        f"{parameter('image_size')} {size} does not fit a {architecture}: {problem.rstrip('.')}."
        f"{instead} Without {parameter('image_size')} it has its own size."
    )
