"""Files of weights, such as `model` in a model directory: a state dict, never a pickled object."""

import re
import warnings
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

import torch
from torch import Tensor

PREFIX = "model."
EXTRA_HEAD = "out_linear_model."
WRAPPERS = (
    "state_dict",
    "model_state_dict",
    "model",
)  # where checkpoints hold one; the first counts
PICKLE_START = b"\x80"  # of torch.save's format before version 1.6
SAFETENSORS_START = re.compile(
    rb".{5}\0{3}\{", re.DOTALL
)  # the header's length, then the header in JSON


class WeightsError(Exception):
    """The file does not hold the expected weights; the text says what is wrong."""


def read_state_dict(path: Path, max_bytes: int) -> dict[str, Tensor]:
    """The tensors of a state dict under torchvision's names, without the designer's prefix
    `model.`.

    The file is of torch.save or of safetensors. A training checkpoint may hold the state dict as
    one of its entries. Only tensors and plain containers are unpickled. Raises `WeightsError`.
    """
    size = path.stat().st_size
    if size > max_bytes:
        raise WeightsError(
            f"the file has {size:,} bytes; the architecture has at most {max_bytes:,}."
        )
    is_zip = zipfile.is_zipfile(path)
    with path.open("rb") as file:
        start = file.read(24)
    if SAFETENSORS_START.match(start):
        import safetensors.torch  # not needed by a served model

        try:
            state: Mapping[str, Tensor] = safetensors.torch.load_file(path)
        except (
            safetensors.SafetensorError,
            KeyError,
        ) as error:  # KeyError: a dtype that torch does not have
            raise WeightsError(f"it is not a complete safetensors file: {error}.") from error
    elif is_zip or start.startswith(PICKLE_START):
        state = _state_dict_in(_read_torch(path, is_zip))
    elif start.startswith(b"version https://git-lfs."):
        raise WeightsError("it is a pointer of git-LFS, not the weights: run `git lfs pull`.")
    else:
        raise WeightsError("it is neither a torch.save nor a safetensors file, or is incomplete.")
    return {name.removeprefix(PREFIX): value for name, value in state.items()}


def _read_torch(path: Path, is_zip: bool) -> object:
    try:
        with (
            warnings.catch_warnings(),
            # Options of the program that wrote it, in many checkpoints: attributes only.
            torch.serialization.safe_globals([Namespace]),
        ):
            warnings.simplefilter("ignore")  # torch's, about pickles that it then refuses
            # A zip file is memory-mapped: only what is copied into the network is ever read.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # the unpickler raises whatever a hostile file makes it raise
        reason = " ".join(str(error).split())
        if any(
            text in reason
            for text in ("Unsupported", "WeightsUnpickler error", "Weights only load")
        ):
            reason = (
                "it holds more than tensors (a pickled object or function), which is never"
                " loaded. Save a state dict: torch.save(model.state_dict(), …)."
            )
        elif (
            "data.pkl" in reason
        ):  # which torch.save writes into every zip file, and torch.export does not
            reason = (
                "it is a program of torch.export, or another zip file, and not a torch.save file."
                " Save a"
                " program's state dict: torch.save(torch.export.load(…).state_dict, …)."
            )
        else:
            reason = f"it is not a torch.save file ({type(error).__name__}: {reason[:160]})."
        raise WeightsError(reason) from error


def _state_dict_in(value: object) -> Mapping[str, Tensor]:
    """What was read, or the state dict that a training checkpoint holds."""
    if _is_state_dict(value):
        return value
    entries = value if isinstance(value, Mapping) else {}
    inside = {name: part for name, part in entries.items() if _is_state_dict(part) and len(part)}
    names = [name for name in WRAPPERS if name in inside] or list(inside)
    if not names:
        raise WeightsError("it is not a state dict (names to tensors).")
    if len(names) > 1 and names[0] not in WRAPPERS:
        several = " and ".join(repr(name)[:60] for name in names[:5])
        raise WeightsError(
            f"it holds several state dicts, under {several}: torch.save(torch.load(…)[…], …)."
        )
    return inside[names[0]]


def _is_state_dict(value: object) -> TypeGuard[Mapping[str, Tensor]]:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(part, Tensor) for name, part in value.items()
    )


def write_state_dict(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write weights in the format of a model directory. Raises `OSError`."""
    with path.open("wb") as file:
        try:
            torch.save(OrderedDict((PREFIX + name, value) for name, value in state.items()), file)
        except RuntimeError as error:  # torch's, for a file that could not be written completely
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise


def fold_extra_head(state: dict[str, Tensor], head: str) -> dict[str, Tensor]:
    """Fold the designer's two consecutive linear heads into one: W = W2 W1, b = W2 b1 + b2.

    The designer appends `out_linear_model` (1000 to the number of classes) to a pretrained network,
    with nothing in between. Without it the state is returned unchanged. Raises `WeightsError`.
    """
    folded = dict(state)
    outer = [
        folded.pop(name) for part in ("weight", "bias") if (name := EXTRA_HEAD + part) in state
    ]
    if not outer:
        return folded
    if len(outer) == 1:
        raise WeightsError(
            f"it has one of {EXTRA_HEAD}weight and {EXTRA_HEAD}bias, without the other."
        )
    weight, bias = f"{head}.weight", f"{head}.bias"
    try:
        outer_weight, outer_bias, inner_weight, inner_bias = (
            value.double() for value in (*outer, folded[weight], folded[bias])
        )
        folded[weight] = (outer_weight @ inner_weight).float()
        folded[bias] = (outer_weight @ inner_bias + outer_bias).float()
    except (KeyError, RuntimeError) as error:
        raise WeightsError(f"its {EXTRA_HEAD}* does not fit after {head}: {error}.") from error
    return folded
