"""Whether the options of a race of networks go together, checked before PyTorch is loaded."""

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.image_classifier import architectures

# By evidence and by licence: trained at scale, and free for any use. On natural images frozen
# features of the later ones lead by five to nine points; on medical ones the first is as good.
OF_TORCHVISION = ("resnet18", "resnet50", "convnext_tiny")
OF_TIMM = (
    "timm:vit_small_patch14_dinov2.lvd142m",
    "timm:vit_pe_core_small_patch16_384.fb",
    "timm:vit_base_patch16_siglip_224.v2_webli",
)
# Of candidates that race at another size than their own, which is 518 px: an eighth of the time.
RACED_AT: Mapping[str, int] = {"timm:vit_small_patch14_dinov2.lvd142m": 224}


def check_race_options(options: FitOptions) -> None:
    """Raise `ParameterError` for options that are no race, or exclude it."""
    minutes = options.minutes
    if minutes is None:
        if options.candidates:
            raise ParameterError(
                f"{parameter('candidates')} are the networks of a race, which needs"
                f" {parameter('minutes')}: how long it and the training may take. Give both, or"
                f" name one network with {parameter('architecture')}."
            )
        return
    if not (math.isfinite(minutes) and minutes > 0):
        raise ParameterError(f"{parameter('minutes')} should be greater than 0; it is {minutes}.")
    for name in ("start_from", "from_scratch"):
        if getattr(options, name):
            raise ParameterError(
                f"{parameter('minutes')} and {parameter(name)} are mutually exclusive: a race of"
                f" networks decides with which weights training starts. Give one.{_instead(name)}"
            )
    for candidate in options.candidates:
        _check_candidate(candidate)


def _instead(name: str) -> str:
    if name != "start_from":
        return ""
    return f" A trained model can be one of the {parameter('candidates')}."


def _check_candidate(candidate: str) -> None:
    if os.path.isdir(candidate):
        return
    if os.sep in candidate or candidate.startswith("."):
        problem = explain_missing(Path(candidate), "directory")
        raise ParameterError(f"{parameter('candidates')} {candidate}: {problem}")
    if not architectures.is_known(candidate):
        unknown = architectures.unknown_architecture_message(candidate)
        raise ParameterError(
            f"{parameter('candidates')}: {unknown} Nor is there a directory of that name."
        )
    if architectures.is_of_timm(candidate) and not _has_timm():
        raise ParameterError(
            f"{parameter('candidates')}: {candidate} needs timm, which is not installed:"
            f" {architectures.INSTALL_TIMM}."
        )


def candidates_of(options: FitOptions) -> Sequence[str]:
    """Return the names and directories that race, besides what the model options describe."""
    if options.candidates:
        return list(dict.fromkeys(options.candidates))
    return [*OF_TORCHVISION, *(OF_TIMM if _has_timm() else ())]


def describes_a_model(options: FitOptions) -> bool:
    """Return whether the options describe a network of their own, which takes part as well."""
    names = ("architecture", "weights", "weights_file", "pretrained")
    return any(getattr(options, name) != getattr(ModelOptions, name) for name in names)


def _has_timm() -> bool:
    return importlib.util.find_spec("timm") is not None
