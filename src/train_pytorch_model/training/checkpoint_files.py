"""Checkpoints of a run: snapshots of engine and state on the CPU, and their files.

A checkpoint holds a snapshot, and a run returns to one when its loss is no longer finite: one
mechanism for both. On disk it is a file of tensors, and a manifest that commits it.

    checkpoints/000012-3f9a61c2.safetensors   tensors, under a unique name, never modified
    checkpoints/000012-3f9a61c2.json          {"content": {"size": …, "sha256": …,   of the tensor file
                                                           "values": {…}},           plain values
                                               "sha256": of the content}

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
from collections.abc import Callable, Mapping
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
NUM_KEPT = 2  # the newest, and one to fall back to
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
    number = 1 + max((number for number, _ in _manifests(folder)), default=0)
    name = f"{number:06}-{secrets.token_hex(4)}"
    pieces = tensor_file(checkpoint.tensors)
    sha256 = write_durably(folder / f"{name}.safetensors", *pieces)
    content = {"size": sum(map(len, pieces)), "sha256": sha256, "values": checkpoint.values}
    manifest = {"content": content, "sha256": _sha256_of(content)}
    write_durably(folder / f"{name}.json", json.dumps(manifest).encode("ascii"))
    sync_folder(folder)
    # Older checkpoints go, manifests first, and the leftovers of interrupted writes.
    manifests = [path for _, path in _manifests(folder)]
    kept = {path.stem for path in manifests[:NUM_KEPT]}
    for path in [*manifests[NUM_KEPT:], *sorted(folder.iterdir())]:
        if path.name.partition(".")[0] not in kept:
            with suppress(OSError):  # it does no harm
                path.unlink(missing_ok=True)


def tensor_file(tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """The content of a file of these tensors, on the CPU in C order, as pieces, which are their
    memory.
    """
    assert sys.byteorder == "little"  # as the format is
    # The largest items first, so that each tensor starts at a multiple of its item size.
    ordered = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    pieces = [tensors[name].view(-1).view(torch.uint8).numpy().data for name in ordered]
    header = {
        name: {
            "dtype": _DTYPES[tensors[name].dtype],
            "shape": tensors[name].shape,
            "data_offsets": offsets,
        }
        for name, offsets in zip(
            ordered, pairwise(accumulate(map(len, pieces), initial=0)), strict=True
        )
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of 8 bytes
    return [memoryview(len(text).to_bytes(8, "little") + text), *pieces]


def load_checkpoint(
    folder: Path, admit: Callable[[Checkpoint], None]
) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, None if there is no manifest at all; and why newer ones were
    skipped.

    `admit` raises `MalformedFileError` for one that does not fit the run. Raises `CheckpointError`
    if there are checkpoints but none is intact: a run never silently starts over.
    """
    problems: list[str] = []
    try:
        manifests = _manifests(folder)
    except OSError as error:
        raise CheckpointError(
            f"The checkpoints in {folder} cannot be read: {error.strerror}."
        ) from error
    for _, manifest in manifests:
        try:
            checkpoint = _read(manifest)
            admit(checkpoint)
        except MalformedFileError as error:
            problems.append(f"{manifest.name}: {error}")
            continue
        for _, damaged in manifests[
            : len(problems)
        ]:  # which do not count among the newest, which are kept
            with suppress(OSError):  # it is skipped again
                damaged.rename(damaged.with_name(damaged.name + ".damaged"))
        return checkpoint, problems
    if problems:
        raise CheckpointError(
            f"None of the checkpoints in {folder} can be read:{bulleted(problems)}\n"
            f"Restore them from a backup, or start over with {parameter('fresh')}."
        )
    return None, problems


def _read(manifest: Path) -> Checkpoint:
    try:
        document = json.loads(read_bounded(manifest, MAX_MANIFEST_BYTES))
        content = document["content"]
        size, sha256 = int(content["size"]), str(content["sha256"])
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
    """Numbers and files, newest first. Raises `OSError`."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    found = [
        (int(match[1]), folder / name)
        for name in names
        if (match := _MANIFEST_NAME.fullmatch(name))
    ]
    return sorted(found, reverse=True)


def _sha256_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()
