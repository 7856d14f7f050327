"""A snapshot of engine and state over all processes, and the way back."""

from collections.abc import Mapping
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
from train_pytorch_model.training.optimizer import momentum_of
from train_pytorch_model.training.state import VERSION, Progress, State, copy_to_cpu

SHARED = (
    "network.",
    "momentum.",
    "best.",
)  # prefixes of tensors that are the same on all processes


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
    scaler, environment = engine.scaler.state_dict(), engine.bit_context()
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
    unreadable = world.gather(list(snapshot.values["position"]["unreadable"].items()))
    by_rank = world.gather_on_main([dict(snapshot.local)])
    if not world.is_main:
        return None
    margins = {"margins": merge([each.pop("margins") for each in by_rank])}
    local = {
        f"{name}.{rank}": value for rank, each in enumerate(by_rank) for name, value in each.items()
    }
    position = snapshot.values["position"] | {"unreadable": dict(unreadable)}
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
