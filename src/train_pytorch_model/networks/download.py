"""Pretrained weights, from where their authors have put them."""

import logging
import re
import socket
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import FailedToDownloadFilesError, ParameterError
from train_pytorch_model.formats.reading import sha256_of
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.machine.console import logger

if TYPE_CHECKING:
    from torchvision.models._api import WeightsEnum as Weights

SHA256_START = re.compile(r"-([0-9a-f]{8,})\.pth$")  # in the name of every torchvision file
HUB_WEIGHTS = "model.safetensors"  # in a repository of the hub
SILENCE_S = 60.0  # of a server before a download fails; by default Python waits for ever


def fetch_pretrained(architecture: str) -> None:
    """Have the best weights of an architecture in its cache, downloaded unless they are there.

    Raises `FailedToDownloadFilesError`, `ParameterError`.
    """
    if not architectures.is_of_timm(architecture):
        fetch(named_weights(architecture, "DEFAULT"), is_shown=False)
        return
    import timm

    config = timm.get_pretrained_cfg(architecture.removeprefix(architectures.TIMM))
    if config is None:
        raise ParameterError(f"timm {timm.__version__} has no weights of {architecture}.")
    fetch_config_from_hub(config.to_dict(), is_shown=False)


def named_weights(architecture: str, name: str) -> "Weights":
    """Return torchvision's weights of a name; `DEFAULT` is the best. Raises `ParameterError`."""
    known = architectures.torchvision_models().get_model_weights(architecture)
    size = architectures.FAMILY_OF[architecture].image_size
    # A network with a fixed number of patches needs weights for its own image size.
    fitting: dict[str, Weights] = {
        weights.name: weights
        for weights in known
        if size is None or weights.meta["min_size"] == (size, size)
    }
    wanted = name.rpartition(".")[2]  # NAME, or ResNet50_Weights.NAME
    if name == "DEFAULT":
        wanted = known.DEFAULT.name
    if wanted in fitting:
        return fitting[wanted]
    at_size = f" at {size} px" if size else ""
    raise ParameterError(
        f"{parameter('weights')} {name} is not known for a {architecture}{at_size}. Known weights:"
        f" {', '.join(fitting)}."
    )


def fetch(weights: "Weights", is_shown: bool) -> Path:
    """Return the path of the intact file in torch's cache, which is downloaded if it is not there.

    `is_shown` shows the progress. Raises `FailedToDownloadFilesError`.
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
    # OSError: a URLError is one. HTTPException: a malformed response. RuntimeError: another hash.
    except (OSError, HTTPException, RuntimeError) as error:
        raise _download_error(url, error) from error
    finally:
        socket.setdefaulttimeout(timeout)
    return path


def fetch_from_hub(network: nn.Module, is_shown: bool) -> Path:
    """Return the path of the file in the hub's cache, which is downloaded if it is not there.

    `is_shown` shows the progress. Raises `FailedToDownloadFilesError`, `ParameterError`.
    """
    config: Any = network.pretrained_cfg
    return fetch_config_from_hub(config, is_shown)


def fetch_config_from_hub(config: Mapping[str, Any], is_shown: bool) -> Path:
    """Do what `fetch_from_hub` does, for a network's configuration in timm."""
    import huggingface_hub

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
        " needs more images and epochs.",
    )
