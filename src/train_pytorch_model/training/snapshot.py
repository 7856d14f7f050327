"""Snapshots: copies of engine and state on the CPU, and the way back.

A run returns to one when its loss is no longer finite, and those of all processes are what a
checkpoint holds: one mechanism for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.networks.batch_norms import running_statistics, set_running_statistics
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES
from train_pytorch_model.training.checkpoint_files import Checkpoint
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.margins import merge
from train_pytorch_model.training.metrics import Metrics
from train_pytorch_model.training.optimizer import delayed_of, momentum_of, restore_delayed
from train_pytorch_model.training.state import VERSION, Progress, State, copy_to_cpu

# Prefixes of the tensors that are the same on all processes.
SHARED = ("network.", "momentum.", "delayed.", "best.")


@dataclass(frozen=True)
class Snapshot:
    """A copy of engine and state on the CPU, as one process has them."""

    values: Mapping[str, Any]
    # The same on all processes: network, momentum, steps that wait, the best epoch.
    shared: Mapping[str, Tensor]
    local: Mapping[str, Tensor]  # of this process: statistics between validations, `State.tensors`


def take_snapshot(engine: Engine, state: State) -> Snapshot:
    """Return a copy of engine and state as they are now."""
    network = engine.network
    shared = {
        **_prefixed("network.", network.state_dict()),
        **_prefixed("momentum.", momentum_of(engine.optimizer, network)),
        **_prefixed("delayed.", delayed_of(network)),
        **_prefixed("best.", state.best.weights),
    }
    local = {"statistics": running_statistics(network), **state.tensors()}
    values = {
        **state.values(),
        "scaler": engine.scaler.state_dict(),
        "bit_context": engine.bit_context(),
    }
    return Snapshot(values, copy_to_cpu(shared), copy_to_cpu(local))


def restore(engine: Engine, state: State, snapshot: Snapshot, rolls_back: bool = False) -> None:
    """Return to a snapshot; with `rolls_back`, at half the learning rate from there on."""
    network = engine.network
    network.load_state_dict(_part(snapshot.shared, "network."))
    for name, momentum in momentum_of(engine.optimizer, network).items():
        # In place, because CUDA graphs hold its address.
        momentum.copy_(snapshot.shared[f"momentum.{name}"])
    restore_delayed(engine.optimizer, network, _part(snapshot.shared, "delayed."))
    if snapshot.values["scaler"]:  # empty if that run did not use float16
        engine.scaler.load_state_dict(snapshot.values["scaler"])
    set_running_statistics(network, snapshot.local["statistics"])

    saved = _part(snapshot.shared, "best.")
    # In the order of the network, which is that of the files that are written from it.
    best = {name: saved[name] for name in network.state_dict() if name in saved}
    state.restore(snapshot.values, snapshot.local, best, rolls_back)


def check(engine: Engine, checkpoint: Checkpoint) -> None:
    """Raise `MalformedFileError` unless a checkpoint fits this engine."""
    if checkpoint.values.get("version") != VERSION:
        raise MalformedFileError("it is of another version of this program.")
    try:
        msgspec.convert(checkpoint.values["progress"], Progress, str_keys=True)
        Metrics(**checkpoint.values["best"]["metrics"])
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise MalformedFileError(f"its values are not those of a run: {error}.") from error

    network = engine.network.state_dict()
    momentum = momentum_of(engine.optimizer, engine.network)
    num_images = len(engine.plan.inputs.training)
    needed = {
        **_prefixed("network.", network),
        **_prefixed("momentum.", momentum),
        "margins": torch.empty(2, 3, num_images, dtype=torch.int32),
    }
    steps = {
        name: torch.empty(*tensor.shape[2:], 2, 2, dtype=torch.float64)
        for name, tensor in momentum.items()
        if name in network and tensor.ndim == 4
    }
    known = needed | _prefixed("best.", network) | _prefixed("delayed.", steps)
    for name, tensor in checkpoint.tensors.items():
        if not name.startswith((*SHARED, "margins")):
            continue
        expected = known.get(name, torch.empty(0))
        if (expected.shape, expected.dtype) != (tensor.shape, tensor.dtype):
            raise MalformedFileError(f"{name} does not fit the run.")
    if not checkpoint.tensors.keys() >= needed.keys():
        raise MalformedFileError("a tensor of the network is missing.")


def gather(snapshot: Snapshot, world: World) -> Checkpoint | None:
    """Return the snapshots of all processes as one checkpoint on the main process.

    Collective; None on the other processes. Local tensors are saved for each rank, except margins:
    those of all processes are one tensor, since they are large for many images.
    """
    progress = snapshot.values["progress"]
    unreadable = world.gather(list(progress["newly_unreadable"].items()))
    by_rank = world.gather_on_main([dict(snapshot.local)])
    if not world.is_main:
        return None
    tensors = dict(snapshot.shared)
    tensors["margins"] = merge([local.pop("margins") for local in by_rank])
    for rank, local in enumerate(by_rank):
        tensors.update({f"{name}.{rank}": tensor for name, tensor in local.items()})
    progress = {**progress, "newly_unreadable": dict(unreadable)}
    return Checkpoint(tensors, {**snapshot.values, "progress": progress})


def scatter(checkpoint: Checkpoint | None, world: World) -> Snapshot | None:
    """Return the main process's checkpoint as each process's snapshot; None without a checkpoint.

    Collective. If the number of processes has changed, all get the mean of the statistics, and rank
    0 takes all sums. It always takes all margins, which are the same sums whoever adds them. All
    get the hashes of all machines.
    """
    checkpoint = world.broadcast(checkpoint)
    if checkpoint is None:
        return None
    tensors = checkpoint.tensors
    statistics = torch.stack(_by_rank(tensors, "statistics."))
    sums = torch.stack(_by_rank(tensors, "sums."))
    margins = tensors["margins"]
    if len(sums) == world.size:
        local = {"statistics": statistics[world.rank], "sums": sums[world.rank]}
    else:
        total = sums.sum(dim=0) if world.is_main else torch.zeros_like(sums[0])
        local = {"statistics": statistics.mean(dim=0), "sums": total}
    local["margins"] = margins if world.is_main else torch.zeros_like(margins)
    local["hashes"] = _join_hashes(_by_rank(tensors, "hashes."))
    shared = {name: tensor for name, tensor in tensors.items() if name.startswith(SHARED)}
    return Snapshot(checkpoint.values, shared, local)


def _join_hashes(by_rank: Sequence[Tensor]) -> Tensor:
    """Return the hashes of all machines, (N, 16); those of a rank are empty if it keeps none."""
    known = [hashes for hashes in by_rank if len(hashes)]
    if not known:
        return torch.empty(0, NUM_BYTES, dtype=torch.uint8)
    return torch.stack(known).amax(dim=0)


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have this prefix, under their names without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _by_rank(tensors: Mapping[str, Tensor], prefix: str) -> list[Tensor]:
    part = _part(tensors, prefix)
    return [part[str(rank)] for rank in range(len(part))]
