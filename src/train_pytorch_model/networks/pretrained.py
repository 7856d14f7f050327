"""torchvision's pretrained weights: from a name to a local file."""

import re
import socket
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path

import torch
import torchvision.models
from torchvision.models._api import WeightsEnum as Weights

from train_pytorch_model.formats.reading import sha256_of
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.machine.console import logger
from train_pytorch_model.words.errors import FailedToDownloadFilesError, ParameterError, parameter

SHA256_START = re.compile(r"-([0-9a-f]{8,})\.pth$")  # in the name of every torchvision file
SILENCE_S = 60.0  # of a server before a download fails; by default Python waits for ever


def named_weights(architecture: str, name: str) -> Weights:
    """torchvision's weights of that name; `DEFAULT` selects the best. Raises `ParameterError`."""
    known = torchvision.models.get_model_weights(architecture)
    size = FAMILY_OF[architecture].image_size
    # A network with a fixed number of patches needs weights for its own image size.
    fitting = [weights for weights in known if size is None or weights.meta["min_size"] == (size, size)]
    best: Weights = known.DEFAULT
    wanted = best.name if name == "DEFAULT" else name.rpartition(".")[2]  # or ResNet50_Weights.IMAGENET1K_V2
    chosen: Weights | None = next((weights for weights in fitting if weights.name == wanted), None)
    if chosen is not None:
        return chosen
    at_size = f" at {size} px" if size else ""
    raise ParameterError(
        f"{parameter('weights')} {name} is not known for a {architecture}{at_size}. Known weights:"
        f" {', '.join(weights.name for weights in fitting)}."
    )


def fetch(weights: Weights, is_shown: bool) -> Path:
    """Return the file of these weights in torch's cache, downloaded unless an intact copy is there.

    `is_shown` prints the progress of a download. Raises `FailedToDownloadFilesError`.
    """
    url: str = weights.url
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    (sha256_start,) = SHA256_START.findall(url)
    try:
        if path.is_file() and sha256_of(path).startswith(sha256_start):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        logger.info(f"Downloading {url} to {path}")
        with ExitStack() as stack:
            stack.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
            socket.setdefaulttimeout(SILENCE_S)
            torch.hub.download_url_to_file(url, str(path), sha256_start, progress=is_shown)
    # URLError is an OSError; HTTPException: a malformed HTTP response; RuntimeError: a hash mismatch.
    except (OSError, HTTPException, RuntimeError) as error:
        raise download_error(url, error) from error
    return path


def download_error(file_name: str, error: Exception) -> FailedToDownloadFilesError:
    """Return the error for weights that cannot be downloaded, with what to do instead."""
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return FailedToDownloadFilesError(
        file_name,
        f"({reason}) Download the file on a machine with network access, and name it with"
        f" {parameter('weights_file')}; or train from scratch, without pretrained weights, which needs more"
        " images and epochs.",
    )
