"""Create an untrained model directory: an architecture, initial weights and a recipe.

Pretrained weights of torchvision and timm are downloaded unless they are in their caches.
"""

import logging
import re
import socket
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
import torchvision.models
from torch import nn
from torchvision.models._api import WeightsEnum as Weights

from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import sha256_of
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.weights import WeightsError, write_state_dict
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.models import load_weights
from train_pytorch_model.words.errors import FailedToDownloadFilesError, ParameterError, parameter
from train_pytorch_model.words.settings import ModelOptions, Recipe, derive_seed

NUM_CLASSES = 1000  # of an untrained directory, as in the designer; training replaces the head
SHA256_START = re.compile(r"-([0-9a-f]{8,})\.pth$")  # in the name of every torchvision file
HUB_WEIGHTS = "model.safetensors"  # in a repository of the hub
SILENCE_S = 60.0  # of a server before a download fails; by default Python waits for ever


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


def named_weights(architecture: str, name: str) -> Weights:
    """torchvision's weights of that name; `DEFAULT` selects the best. Raises `ParameterError`."""
    known = torchvision.models.get_model_weights(architecture)
    size = architectures.FAMILY_OF[architecture].image_size
    # A network with a fixed number of patches needs weights for its own image size.
    fitting: dict[str, Weights] = {
        weights.name: weights
        for weights in known
        if size is None or weights.meta["min_size"] == (size, size)
    }
    wanted = (
        known.DEFAULT.name if name == "DEFAULT" else name.rpartition(".")[2]
    )  # or ResNet50_Weights.NAME
    if wanted in fitting:
        return fitting[wanted]
    at_size = f" at {size} px" if size else ""
    raise ParameterError(
        f"{parameter('weights')} {name} is not known for a {architecture}{at_size}. Known weights:"
        f" {', '.join(fitting)}."
    )


def fetch(weights: Weights, is_shown: bool) -> Path:
    """The intact file in torch's cache, or a download, shown or not.

    Raises `FailedToDownloadFilesError`.
    """
    url: str = weights.url
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    (sha256_start,) = SHA256_START.findall(url)
    timeout = socket.getdefaulttimeout()
    try:
        if path.is_file() and sha256_of(path).startswith(sha256_start):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        logger.info(f"Downloading {url} to {path}")
        socket.setdefaulttimeout(SILENCE_S)
        torch.hub.download_url_to_file(url, str(path), sha256_start, progress=is_shown)
    # URLError is an OSError; HTTPException: a malformed HTTP response; RuntimeError: a hash
    # mismatch.
    except (OSError, HTTPException, RuntimeError) as error:
        raise _download_error(url, error) from error
    finally:
        socket.setdefaulttimeout(timeout)
    return path


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


def fetch_from_hub(network: nn.Module, is_shown: bool) -> Path:
    """The file in the hub's cache, or a download.

    Raises `FailedToDownloadFilesError`, `ParameterError`.
    """
    import huggingface_hub

    config: Any = network.pretrained_cfg
    repository = config.get("hf_hub_id")
    if not repository or config.get("custom_load"):
        raise ParameterError(
            f"timm names no {HUB_WEIGHTS} on the hub for {config['architecture']}. Name a file with"
            f" {parameter('weights_file')}, or another tag: timm:NAME.TAG."
        )
    cached = huggingface_hub.try_to_load_from_cache(repository, HUB_WEIGHTS)
    if isinstance(cached, str):
        return Path(cached)
    logger.info(f"Downloading {repository}/{HUB_WEIGHTS}")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # no line for each attempt
    if not is_shown:
        huggingface_hub.utils.disable_progress_bars()
    try:
        return Path(huggingface_hub.hf_hub_download(repository, HUB_WEIGHTS))
    except Exception as error:  # of the hub's client, and of the HTTP client that it uses
        raise _download_error(f"{repository}/{HUB_WEIGHTS}", error) from error


def _download_error(file_name: str, error: Exception) -> FailedToDownloadFilesError:
    """Return the error for weights that cannot be downloaded, with what to do instead."""
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return FailedToDownloadFilesError(
        file_name,
        f"({reason}) Download the file on a machine with network access, and name it with"
        f" {parameter('weights_file')}; or train from scratch, without pretrained weights, which"
        " needs more"
        " images and epochs.",
    )
