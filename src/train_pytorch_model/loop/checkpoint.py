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

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.reading import MalformedFileError, read_bounded
from train_pytorch_model.formats.writing import sync_folder, write_durably
from train_pytorch_model.inputs.twins import NUM_BYTES
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.metrics import Metrics, merge
from train_pytorch_model.loop.optimizer import momentum_of
from train_pytorch_model.loop.state import VERSION, Progress, State, copy_to_cpu
from train_pytorch_model.networks.batch_norms import running_statistics, set_running_statistics
from train_pytorch_model.words.errors import CheckpointError, bulleted, parameter

MAX_MANIFEST_BYTES = 256 << 20
NUM_KEPT = 2  # the newest, and one to fall back to
SHARED = (
    "network.",
    "momentum.",
    "best.",
)  # prefixes of tensors that are the same on all processes
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


@dataclass(frozen=True)
class Snapshot:
    """A copy of engine and state on the CPU."""

    values: Mapping[str, Any]
    shared: Mapping[str, Tensor]  # the same on all processes: network, momentum, the best epoch
    local: Mapping[str, Tensor]  # of this process: statistics between validations, `State.tensors`


def take_snapshot(engine: Engine, state: State) -> Snapshot:
    """Return a copy of engine and state as they are now."""
    network = engine.network
    shared = {
        **_prefixed("network.", network.state_dict()),
        **_prefixed("momentum.", momentum_of(engine.optimizer, network)),
        **_prefixed("best.", state.best.weights),
    }
    local = {"statistics": running_statistics(network), **state.tensors()}
    scaler, environment = engine.scaler.state_dict(), engine.plan.bit_context()
    values = {**state.values(), "scaler": scaler, "environment": environment}
    return Snapshot(values, copy_to_cpu(shared), copy_to_cpu(local))


def restore(engine: Engine, state: State, snapshot: Snapshot, rolls_back: bool = False) -> None:
    """Return to a snapshot; with `rolls_back`, at half the learning rate from there on."""
    network = engine.network
    network.load_state_dict(_part(snapshot.shared, "network."))
    for name, momentum in momentum_of(engine.optimizer, network).items():
        momentum.copy_(
            snapshot.shared[f"momentum.{name}"]
        )  # in place, because CUDA graphs hold its address
    if snapshot.values["scaler"]:  # empty if that run did not use float16
        engine.scaler.load_state_dict(snapshot.values["scaler"])
    set_running_statistics(network, snapshot.local["statistics"])
    best = _part(snapshot.shared, "best.")
    best = {
        name: best[name] for name in network.state_dict() if name in best
    }  # the order of saved files
    state.restore(snapshot.values, snapshot.local, best, rolls_back)


def check(engine: Engine, checkpoint: Checkpoint) -> None:
    """Raise `MalformedFileError` unless a checkpoint fits this engine."""
    if checkpoint.values.get("version") != VERSION:
        raise MalformedFileError("it is of another version of this program.")
    try:
        msgspec.convert(checkpoint.values["position"], Progress, str_keys=True)
        Metrics(**checkpoint.values["best"]["metrics"])
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise MalformedFileError(f"its values are not those of a run: {error}.") from error
    network, momentum = engine.network.state_dict(), momentum_of(engine.optimizer, engine.network)
    margins = {"margins": torch.empty(2, 3, len(engine.plan.inputs.training), dtype=torch.int32)}
    needed = _prefixed("network.", network) | _prefixed("momentum.", momentum) | margins
    known = needed | _prefixed("best.", network)
    for name, tensor in checkpoint.tensors.items():
        own = known.get(name, torch.empty(0))
        if name.startswith((*SHARED, *margins)) and (own.shape, own.dtype) != (
            tensor.shape,
            tensor.dtype,
        ):
            raise MalformedFileError(f"{name} does not fit the run.")
    if not checkpoint.tensors.keys() >= needed.keys():
        raise MalformedFileError("a tensor of the network is missing.")


def gather(snapshot: Snapshot, world: World) -> Checkpoint | None:
    """Return the snapshots of all processes as one checkpoint on the main process, None on the
    others.
    """
    rejected = world.gather(list(snapshot.values["position"]["rejected"].items()))
    by_rank = world.gather_on_main([dict(snapshot.local)])
    if not world.is_main:
        return None
    margins = {"margins": merge([each.pop("margins") for each in by_rank])}
    local = {
        f"{name}.{rank}": value for rank, each in enumerate(by_rank) for name, value in each.items()
    }
    position = snapshot.values["position"] | {"rejected": dict(rejected)}
    return Checkpoint(
        {**snapshot.shared, **local, **margins}, {**snapshot.values, "position": position}
    )


def scatter(checkpoint: Checkpoint | None, world: World) -> Snapshot | None:
    """Return the main process's checkpoint as each process's snapshot; None if there is no
    checkpoint.

    If the number of processes has changed, all get the mean of the statistics, and rank 0 takes all
    sums. It always takes all margins, which are the same sums whoever adds them.
    """
    checkpoint = world.broadcast(checkpoint)
    if checkpoint is None:
        return None
    tensors = checkpoint.tensors
    statistics, sums = (
        torch.stack(_by_rank(tensors, "statistics.")),
        torch.stack(_by_rank(tensors, "sums.")),
    )
    if len(sums) == world.size:
        local = {"statistics": statistics[world.rank], "sums": sums[world.rank]}
    else:
        total = sums.sum(dim=0) if world.is_main else torch.zeros_like(sums[0])
        local = {"statistics": statistics.mean(dim=0), "sums": total}
    hashes = [each for each in _by_rank(tensors, "hashes.") if len(each)]  # of each machine
    none = torch.empty(0, NUM_BYTES, dtype=torch.uint8)
    local["hashes"] = torch.stack(hashes).amax(dim=0) if hashes else none
    local["margins"] = tensors["margins"] if world.is_main else torch.zeros_like(tensors["margins"])
    shared = {name: each for name, each in tensors.items() if name.startswith(SHARED)}
    return Snapshot(checkpoint.values, shared, local)


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in tensors.items()}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _by_rank(tensors: Mapping[str, Tensor], prefix: str) -> list[Tensor]:
    part = _part(tensors, prefix)
    return [part[str(rank)] for rank in range(len(part))]
