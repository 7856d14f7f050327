"""An untrained model directory: an architecture, its first weights and a recipe."""

from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import torch
import torchvision.models
from torch import Tensor
from torchvision.models._api import WeightsEnum as Weights

from train_pytorch_model.errors import FailedToDownloadFilesError, ParameterError
from train_pytorch_model.formats.files import writing_directory
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.image_classifier.weights import WeightsError, write_state_dict
from train_pytorch_model.models import load_weights
from train_pytorch_model.recipe import Recipe
from train_pytorch_model.seeds import derive_seed

NUM_CLASSES = 1000  # of an untrained directory, as the designer writes it; training puts in its own head
FLAG = "--output"


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
    """Write the untrained model directory. `shows_download`: prints how far one is.

    Raises `FailedToDownloadFilesError`, `ParameterError` for a weights file that does not fit,
    `OutputDirectoryError`.
    """
    torch.manual_seed(derive_seed(seed, "weights"))
    network = build(architecture, option, NUM_CLASSES)
    if weights_file is not None:
        try:
            load_weights(network, architecture, weights_file)
        except (OSError, WeightsError) as error:
            raise ParameterError(
                f"--weights-file {weights_file} cannot be used for a {architecture}: {error}"
            ) from error
    elif weights_name is not None:
        weights = _named_weights(architecture, weights_name)
        network.load_state_dict(_download(weights, shows_download))
        if recipe.mean is None:  # what these weights were trained with; not always ImageNet's
            preset = weights.transforms()
            recipe = replace(recipe, mean=tuple(preset.mean), std=tuple(preset.std))
    is_pretrained = weights_name is not None or weights_file is not None
    meta: dict[str, object] = {}
    with writing_directory(output, meta, FLAG) as root:
        write_state_dict(root / MODEL, network.state_dict())
        meta |= write_spec(
            root,
            architecture=architecture,
            option=option,
            is_pretrained=is_pretrained,
            recipe=recipe,
        )


def _named_weights(architecture: str, name: str) -> Weights:
    known = torchvision.models.get_model_weights(architecture)
    if name == "DEFAULT":
        return known.DEFAULT
    try:
        return known[name.rpartition(".")[2]]  # also ResNet50_Weights.IMAGENET1K_V2, torchvision's full name
    except KeyError:
        raise ParameterError(
            f"--weights {name} is not known for a {architecture}. Known are"
            f" {', '.join(weights.name for weights in known)}."
        ) from None


def _download(weights: Weights, is_shown: bool) -> Mapping[str, Tensor]:
    try:
        with ExitStack() as silence:
            if not is_shown:  # `progress` is the bar only; the address goes to one of the two, by version
                silence.enter_context(redirect_stdout(StringIO()))
                silence.enter_context(redirect_stderr(StringIO()))
            state: Mapping[str, Tensor] = weights.get_state_dict(progress=is_shown, check_hash=True)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; RuntimeError: another hash
        raise FailedToDownloadFilesError(
            weights.url,
            f"({error}) Fetch the file where there is a network, and name it with --weights-file.",
        ) from error
    return state
