"""Files of weights, such as `model` in a model directory: a state dict, never a pickled object."""

import os
import re
import struct
import warnings
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TypeGuard

import torch
from torch import Tensor

PREFIX = "model."
EXTRA_HEAD = "out_linear_model."
# Where checkpoints hold a state dict; the first counts.
WRAPPERS = ("state_dict", "model_state_dict", "model")
# In torch's message about an object that it refuses to unpickle.
REFUSED_OBJECT = ("Unsupported", "WeightsUnpickler error", "Weights only load")
PICKLE_START = b"\x80"  # of torch.save's format before version 1.6
# The header's length, then the header in JSON.
SAFETENSORS_START = re.compile(rb".{5}\0{3}\{", re.DOTALL)


# The end of a zip file, of at most 64 KiB with its comment, and its form for large ones.
ZIP_END_BYTES = (1 << 16) + 22 + 20
ZIP_END = b"PK\5\6"
ZIP64 = b"PK\6\6"
MAX_INDEX_BYTES = 16 << 20  # of a zip file: torch.save writes about 100 bytes a tensor
MAX_PICKLE_BYTES = 64 << 20  # of what a file of torch.save says about its tensors
OUT_OF_MEMORY = ("DefaultCPUAllocator", "Cannot allocate memory", "unable to mmap")


class WeightsError(Exception):
    """The file does not hold the expected weights; the text says what is wrong."""


def read_state_dict(path: Path, max_bytes: int) -> dict[str, Tensor]:
    """Return the tensors of a state dict under torchvision's names.

    That is without the designer's prefix `model.`. The file is of torch.save or of safetensors. A
    training checkpoint may hold the state dict as one of its entries. Only tensors and plain
    containers are unpickled. Raises `WeightsError`.
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
        state = _read_safetensors(path)
    elif is_zip or start.startswith(PICKLE_START):
        if is_zip:
            _check_members(path, max_bytes)
        state = _state_dict_in(_read_torch(path, is_zip))
    elif start.startswith(b"version https://git-lfs."):
        raise WeightsError("it is a pointer of git-LFS, not the weights: run `git lfs pull`.")
    else:
        raise WeightsError("it is neither a torch.save nor a safetensors file, or is incomplete.")
    _check_tensors(state, max_bytes)
    return {name.removeprefix(PREFIX): value for name, value in state.items()}


def _check_members(path: Path, max_bytes: int) -> None:
    """Raise `WeightsError` for a zip file that would take more memory than its weights may."""
    index_bytes = _index_bytes(path)
    if index_bytes > MAX_INDEX_BYTES:
        raise WeightsError(
            f"its zip index has {index_bytes:,} bytes; {MAX_INDEX_BYTES:,} are allowed."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise WeightsError(f"it is not a complete zip file: {error}.") from error
    num_bytes = sum(member.file_size for member in members)
    if num_bytes > max_bytes + MAX_PICKLE_BYTES:
        raise WeightsError(
            f"it unpacks to {num_bytes:,} bytes; the architecture has at most {max_bytes:,}."
        )
    for member in members:
        if member.filename.endswith(".pkl") and member.file_size > MAX_PICKLE_BYTES:
            raise WeightsError(
                f"{PurePosixPath(member.filename).name} in it unpacks to {member.file_size:,}"
                f" bytes; {MAX_PICKLE_BYTES:,} are allowed."
            )


def _index_bytes(path: Path) -> int:
    """Return how large a zip file says that its index is; 0 if it does not say it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - ZIP_END_BYTES - 56))
        end = file.read()
    large = end.rfind(ZIP64)
    if large >= 0 and len(end) >= large + 48:
        (index_bytes,) = struct.unpack_from("<Q", end, large + 40)
        return int(index_bytes)
    usual = end.rfind(ZIP_END)
    if usual >= 0 and len(end) >= usual + 16:
        (index_bytes,) = struct.unpack_from("<I", end, usual + 12)
        return int(index_bytes)
    return 0


def _check_tensors(state: Mapping[str, Tensor], max_bytes: int) -> None:
    """Raise `WeightsError` for tensors that are no plain ones, or that only look small.

    A file can hold one number and say that it is repeated to any shape: whatever computes with such
    a tensor would fill the memory.
    """
    for name, tensor in state.items():
        problem = _problem_with(tensor)
        if problem:
            raise WeightsError(f"its tensor {name[:100]!r} {problem}.")
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if num_bytes > max_bytes:
        raise WeightsError(
            f"its tensors have {num_bytes:,} bytes; the architecture has at most {max_bytes:,}."
        )


def _problem_with(tensor: Tensor) -> str:
    """Return why a tensor cannot be copied into a network; empty if it can."""
    if tensor.is_nested:
        return "is nested"
    if tensor.layout != torch.strided:
        return "is sparse"
    if tensor.is_meta:
        return "has no values (it is on PyTorch's meta device)"
    if tensor.is_quantized or tensor.is_complex():
        return f"is of type {tensor.dtype}"
    return ""


def _read_safetensors(path: Path) -> Mapping[str, Tensor]:
    import safetensors.torch  # not needed by a served model

    try:
        state: Mapping[str, Tensor] = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, KeyError) as error:
        # KeyError: a dtype that torch does not have.
        raise WeightsError(f"it is not a complete safetensors file: {error}.") from error
    return state


def _read_torch(path: Path, is_zip: bool) -> object:
    """Return what a file of torch.save holds. Raises `WeightsError`."""
    try:
        with (
            warnings.catch_warnings(),
            # Options of the program that wrote it, in many checkpoints: attributes only.
            torch.serialization.safe_globals([Namespace]),
        ):
            warnings.simplefilter("ignore")  # torch's, about pickles that it then refuses
            # A zip file is memory-mapped: only what is copied into the network is ever read.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except MemoryError:
        raise
    except Exception as error:  # the unpickler raises whatever a hostile file makes it raise
        if any(part in str(error) for part in OUT_OF_MEMORY):  # which is no fault of the file
            raise MemoryError(str(error)) from error
        raise WeightsError(_why_torch_cannot_load(error)) from error


def _why_torch_cannot_load(error: Exception) -> str:
    text = " ".join(str(error).split())
    if any(part in text for part in REFUSED_OBJECT):
        return (
            "it holds more than tensors (a pickled object or function), which is never loaded."
            " Save a state dict: torch.save(model.state_dict(), …)."
        )
    if "data.pkl" in text:  # which torch.save writes into every zip file, and torch.export does not
        return (
            "it is a program of torch.export, or another zip file, and not a torch.save file."
            " Save a program's state dict: torch.save(torch.export.load(…).state_dict, …)."
        )
    return f"it is not a torch.save file ({type(error).__name__}: {text[:160]})."


def _state_dict_in(value: object) -> Mapping[str, Tensor]:
    """Return what was read, or the state dict that a training checkpoint holds."""
    if _is_state_dict(value):
        return value
    entries = value if isinstance(value, Mapping) else {}
    inside = {name: part for name, part in entries.items() if _is_state_dict(part) and len(part)}
    if not inside:
        raise WeightsError("it is not a state dict (names to tensors).")
    for name in WRAPPERS:
        if name in inside:
            return inside[name]
    if len(inside) > 1:
        several = " and ".join(repr(name)[:60] for name in list(inside)[:5])
        raise WeightsError(
            f"it holds several state dicts, under {several}: torch.save(torch.load(…)[…], …)."
        )
    (state,) = inside.values()
    return state


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


def fold_extra_head(state: dict[str, Tensor], head: str, max_classes: int) -> dict[str, Tensor]:
    """Fold the designer's two consecutive linear heads into one: W = W2 W1, b = W2 b1 + b2.

    The designer appends `out_linear_model` (1000 to the number of classes) to a pretrained network,
    with nothing in between. Without it the state is returned unchanged. Raises `WeightsError`, also
    for more than `max_classes`: the product of two small matrices can be a huge one.
    """
    folded = dict(state)
    outer_weight = folded.pop(f"{EXTRA_HEAD}weight", None)
    outer_bias = folded.pop(f"{EXTRA_HEAD}bias", None)
    if outer_weight is None and outer_bias is None:
        return folded
    if outer_weight is None or outer_bias is None:
        raise WeightsError(
            f"it has one of {EXTRA_HEAD}weight and {EXTRA_HEAD}bias, without the other."
        )
    num_classes = len(outer_weight) if outer_weight.ndim else 0
    if num_classes > max_classes:
        raise WeightsError(
            f"{EXTRA_HEAD}weight has {num_classes:,} rows; {max_classes:,} are the most expected."
        )
    weight = f"{head}.weight"
    bias = f"{head}.bias"
    try:
        inner_weight = folded[weight].double()
        inner_bias = folded[bias].double()
        outer_weight = outer_weight.double()
        folded[weight] = (outer_weight @ inner_weight).float()
        folded[bias] = (outer_weight @ inner_bias + outer_bias.double()).float()
    except (KeyError, RuntimeError) as error:
        raise WeightsError(f"its {EXTRA_HEAD}* does not fit after {head}: {error}.") from error
    return folded
