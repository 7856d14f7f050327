"""The files of checkpoints.

A checkpoint is a file of tensors, and a manifest that commits it.

    checkpoints/000012-3f9a61c2.safetensors   tensors, under a unique name, never modified
    checkpoints/000012-3f9a61c2.json          the manifest: {"content": …, "sha256": of the content}

The content of a manifest is {"size": …, "sha256": …, "values": …}: the size and the hash of the
tensor file, and plain values.

A checkpoint exists once its manifest does. Both files are written under a temporary name, synced
and renamed; as nothing refers to a new name yet, a mount that renames by copying does no harm.
Everything is verified when read: every tensor format loads flipped bits silently (197 of 200 in
torch's, 199 of 200 in this one).

The tensor file is a safetensors file, written piece by piece from the tensors' memory. The
library's `save` copies all of it twice, and blocks the interpreter, and so every step, for 0.1 to
0.6 s with a ResNet-18's 133 MB. What its `save_file` has written could not be compared, and a full
disk would not raise an `OSError`.
"""

import hashlib
import json
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from train_pytorch_model.config.wording import bulleted, parameter
from train_pytorch_model.errors import CheckpointError
from train_pytorch_model.formats.reading import MalformedFileError, read_bounded
from train_pytorch_model.formats.writing import sync_folder, write_durably

MAX_MANIFEST_BYTES = 256 << 20
NUM_NEWEST = 2  # the newest, and one to fall back to
_FLOATS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_DTYPES = {**_FLOATS, torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
_MANIFEST_NAME = re.compile(r"(\d{6,})-[0-9a-f]{8}\.json")


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to resume."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, and remove all but the newest ones. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    # Not the step: a run may return to an earlier one and then diverge.
    last = max((number for number, _ in _manifests(folder)), default=0)
    name = f"{last + 1:06}-{secrets.token_hex(4)}"
    pieces = tensor_file(checkpoint.tensors)
    sha256 = write_durably(folder / f"{name}.safetensors", *pieces)
    content = {"size": sum(map(len, pieces)), "sha256": sha256, "values": checkpoint.values}
    manifest = {"content": content, "sha256": _sha256_of(content)}
    write_durably(folder / f"{name}.json", json.dumps(manifest).encode("ascii"))
    sync_folder(folder)
    _remove_all_but_newest(folder)


def tensor_file(tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """Return the content of a file of these tensors, which are on the CPU in C order.

    It comes in pieces: the header, then each tensor's own memory.
    """
    assert sys.byteorder == "little"  # as the format is
    # The largest items first, so that each tensor starts at a multiple of its item size.
    ordered = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    pieces = [tensors[name].view(-1).view(torch.uint8).numpy().data for name in ordered]
    offsets = pairwise(accumulate(map(len, pieces), initial=0))  # start and end of each
    header = {
        name: {
            "dtype": _DTYPES[tensors[name].dtype],
            "shape": tensors[name].shape,
            "data_offsets": start_and_end,
        }
        for name, start_and_end in zip(ordered, offsets, strict=True)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of 8 bytes
    return [memoryview(len(text).to_bytes(8, "little") + text), *pieces]


def load_checkpoint(
    folder: Path, admit: Callable[[Checkpoint], None]
) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest intact checkpoint, and why newer ones were skipped.

    It is None if there is no manifest at all. `admit` raises `MalformedFileError` for one that does
    not fit the run. Raises `CheckpointError` if there are checkpoints but none is intact: a run
    never silently starts over.
    """
    try:
        manifests = _manifests(folder)
    except OSError as error:
        raise CheckpointError(
            f"The checkpoints in {folder} cannot be read: {error.strerror}."
        ) from error
    problems: list[str] = []
    for _, manifest in manifests:
        try:
            checkpoint = _read(manifest)
            admit(checkpoint)
        except MalformedFileError as error:
            problems.append(f"{manifest.name}: {error}")
            continue
        _set_aside([damaged for _, damaged in manifests[: len(problems)]])
        return checkpoint, problems
    if problems:
        raise CheckpointError(
            f"None of the checkpoints in {folder} can be read:{bulleted(problems)}\n"
            f"Restore them from a backup, or start over with {parameter('fresh')}."
        )
    return None, problems


def _remove_all_but_newest(folder: Path) -> None:
    """Remove older checkpoints, manifests first, and what interrupted writes have left behind."""
    manifests = [path for _, path in _manifests(folder)]
    newest = {path.stem for path in manifests[:NUM_NEWEST]}
    for path in [*manifests[NUM_NEWEST:], *sorted(folder.iterdir())]:
        if path.name.partition(".")[0] not in newest:
            with suppress(OSError):  # it does no harm
                path.unlink(missing_ok=True)


def _set_aside(damaged_manifests: Sequence[Path]) -> None:
    """Rename the manifests of damaged checkpoints, which then do not count among the newest."""
    for manifest in damaged_manifests:
        with suppress(OSError):  # it is skipped again
            manifest.rename(manifest.with_name(manifest.name + ".damaged"))


def _read(manifest: Path) -> Checkpoint:
    """Read a checkpoint and verify all of it. Raises `MalformedFileError`."""
    try:
        document = json.loads(read_bounded(manifest, MAX_MANIFEST_BYTES))
        content = document["content"]
        size = int(content["size"])
        sha256 = str(content["sha256"])
        is_whole = document["sha256"] == _sha256_of(content)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedFileError("it is not a valid manifest.") from error
    if not is_whole:
        raise MalformedFileError("its own sha256 does not match.")
    file = manifest.with_suffix(".safetensors")
    data = read_bounded(file, size)
    if len(data) != size:
        raise MalformedFileError(f"{file.name} has {len(data):,} bytes of {size:,}.")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise MalformedFileError(f"the sha256 of {file.name} does not match.")
    try:
        return Checkpoint(safetensors.torch.load(data), content["values"])
    except (safetensors.SafetensorError, KeyError) as error:
        raise MalformedFileError(f"{file.name} holds no tensors: {error}.") from error


def _manifests(folder: Path) -> list[tuple[int, Path]]:
    """Return the numbers and paths of all manifests, newest first. Raises `OSError`."""
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return []
    manifests = []
    for path in paths:
        match = _MANIFEST_NAME.fullmatch(path.name)
        if match:
            manifests.append((int(match[1]), path))
    return sorted(manifests, reverse=True)


def _sha256_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()
