"""The state of a run that changes as it trains: saved as a snapshot, and restored from one.

A checkpoint holds a snapshot, and a run returns to one when its loss is no longer finite: one mechanism for
both. There is no RNG state in it: randomness is a pure function of seed, epoch, step and image.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import SGD

from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.bad_images import BadImage
from train_pytorch_model.loop.best_epoch import BestEpoch, copied_to_cpu
from train_pytorch_model.loop.checkpoints.checkpoint import Checkpoint, DamagedCheckpointError
from train_pytorch_model.loop.early_stopping import Patience
from train_pytorch_model.loop.metrics import Metrics, Sums
from train_pytorch_model.measures.time_budget import EpochTimes
from train_pytorch_model.networks.batch_norms import running_statistics, set_running_statistics

MOMENTUM_BUFFER = "momentum_buffer"  # in the state of torch's SGD


@dataclass
class Position:
    """How far the run is and what has happened so far: plain values, as in a manifest."""

    epoch: int = 1
    """The open epoch, counted from 1."""
    images_done: int = 0
    """Images of the open epoch trained so far, over all processes."""
    steps_done: int = 0
    """Steps of the open epoch taken so far."""
    elapsed_s: float = 0.0
    """Spent on training the open epoch."""
    waited_s: float = 0.0
    """The part of `elapsed_s` spent waiting for images."""
    validation_s: float = 0.0
    """Spent on validating the open epoch."""
    run_s: float = 0.0
    """Spent on the run so far, over all its starts."""
    times: list[EpochTimes] = field(default_factory=list)
    """Times of the completed epochs."""
    rejected: dict[int, str] = field(default_factory=dict)
    """Images that this process could not read in the open epoch: index → reason."""
    lr_factor: float = 1.0
    """Multiplies the schedule's learning rate; halved at each rollback."""
    rollbacks: int = 0
    history: list[dict[str, int | float]] = field(default_factory=list)
    """The metrics of the completed epochs; integers stay integers in a checkpoint."""
    left_out: dict[str, list[int]] = field(default_factory=lambda: {"training": [], "validation": []})
    """Indices of images found unreadable in completed epochs; not rows, which other files would shift."""
    bad_images: list[BadImage] = field(default_factory=list)
    """The same images in human-readable form, with those found before the first epoch."""

    def open_next_epoch(self) -> None:
        """Close the open epoch and open the next one."""
        self.epoch += 1
        self.images_done = self.steps_done = 0
        self.elapsed_s = self.waited_s = self.validation_s = 0.0
        self.rejected = {}


@dataclass(frozen=True)
class Snapshot:
    """A copy of a `TrainState` on the CPU."""

    values: Mapping[str, Any]
    shared: Mapping[str, Tensor]
    """The same on all processes: network, momentum, the best epoch."""
    own: Mapping[str, Tensor]
    """Of this process alone: batch norm statistics between validations, sums of the open epoch."""


class TrainState:
    """The network, its optimizer, and the counters of the run."""

    def __init__(
        self, network: nn.Module, optimizer: SGD, scaler: GradScaler, patience: int, device: torch.device
    ) -> None:
        self.network = network
        self.optimizer = optimizer
        self.scaler = scaler
        self.patience = Patience(patience)
        self.best = BestEpoch()
        self.position = Position()
        self.sums = Sums(device)
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}

    def snapshot(self) -> Snapshot:
        """A copy of the state as it is now."""
        best = self.best
        shared = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for parameter, state in self.optimizer.state.items():
            shared[f"momentum.{self._names[parameter]}"] = state[MOMENTUM_BUFFER]
        shared |= {f"best.{name}": value for name, value in best.weights.items()}
        values = {
            "position": asdict(self.position),
            "patience": {"spent": self.patience.spent, "previous_loss": self.patience.previous_loss},
            "best": {"epoch": best.epoch, "metrics": asdict(best.metrics)},
            "scaler": self.scaler.state_dict(),
        }
        own = {"statistics": running_statistics(self.network), "sums": self.sums.values}
        return Snapshot(values, copied_to_cpu(shared), copied_to_cpu(own))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the state of the snapshot."""
        shared = snapshot.shared
        self.network.load_state_dict(_part(shared, "network."))
        momenta = _part(shared, "momentum.")
        for parameter, name in self._names.items():
            if name not in momenta:
                self.optimizer.state.pop(parameter, None)
                continue
            # In place, because CUDA graphs hold its address; in the parameter's layout, for the fused kernel.
            own = self.optimizer.state[parameter]
            own.setdefault(MOMENTUM_BUFFER, torch.empty_like(parameter)).copy_(momenta[name])
        best = snapshot.values["best"]
        weights = _part(shared, "best.")  # in the network's order, in which they are saved
        weights = {name: weights[name] for name in self.network.state_dict() if name in weights}
        self.best = BestEpoch(best["epoch"], Metrics(**best["metrics"]), weights)
        self.patience.spent = snapshot.values["patience"]["spent"]
        self.patience.previous_loss = snapshot.values["patience"]["previous_loss"]
        self.position = msgspec.convert(snapshot.values["position"], Position, str_keys=True)
        if snapshot.values["scaler"]:  # empty if that run did not use float16
            self.scaler.load_state_dict(snapshot.values["scaler"])
        self.sums.values.copy_(snapshot.own["sums"])
        set_running_statistics(self.network, snapshot.own["statistics"])

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise `DamagedCheckpointError` unless a checkpoint fits this network."""
        try:
            msgspec.convert(checkpoint.values["position"], Position, str_keys=True)
            Metrics(**checkpoint.values["best"]["metrics"])
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise DamagedCheckpointError(f"its values are not those of a run: {error}.") from error
        expected = self.network.state_dict()
        for prefix in ("network.", "momentum.", "best."):
            for name, tensor in _part(checkpoint.tensors, prefix).items():
                if name not in expected or expected[name].shape != tensor.shape:
                    raise DamagedCheckpointError(f"{prefix}{name} is not part of the network.")
                if expected[name].dtype != tensor.dtype:
                    raise DamagedCheckpointError(f"{prefix}{name} is {tensor.dtype}.")
        if _part(checkpoint.tensors, "network.").keys() != expected.keys():
            raise DamagedCheckpointError("a tensor of the network is missing.")

    def is_finite(self) -> bool:
        """Whether all weights and statistics are finite. Waits for the device."""
        values = [value for value in self.network.state_dict().values() if value.is_floating_point()]
        norms = torch._foreach_norm(values, ord=float("inf"))
        return bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())

    def average_statistics(self, world: World) -> None:
        """Average the running statistics over all processes, each of which has seen other images."""
        own = running_statistics(self.network)
        if world.size > 1 and len(own) > 0:
            set_running_statistics(self.network, world.sum(own) / world.size)


def gather(snapshot: Snapshot, world: World) -> Checkpoint | None:
    """The snapshots of all processes as one checkpoint on the main process; None on the others."""
    rejected = world.gather(list(snapshot.values["position"]["rejected"].items()))
    owns = world.gather_on_main([dict(snapshot.own)])
    if not world.is_main:
        return None
    own = {f"{name}.{rank}": value for rank, own in enumerate(owns) for name, value in own.items()}
    position = snapshot.values["position"] | {"rejected": dict(rejected)}
    return Checkpoint({**snapshot.shared, **own}, {**snapshot.values, "position": position})


def scatter(checkpoint: Checkpoint | None, world: World) -> Snapshot | None:
    """The main process's checkpoint as each process's snapshot; None if there is no checkpoint.

    If the number of processes has changed, all get the mean of the statistics, and rank 0 takes all sums.
    """
    shared_out = world.broadcast((dict(checkpoint.tensors), dict(checkpoint.values)) if checkpoint else None)
    if shared_out is None:
        return None
    tensors, values = shared_out
    statistics = _by_rank(tensors, "statistics.")
    sums = _by_rank(tensors, "sums.")
    if len(sums) == world.size:
        own = {"statistics": statistics[world.rank], "sums": sums[world.rank]}
    else:
        total = torch.stack(sums).sum(dim=0)
        own = {
            "statistics": torch.stack(statistics).mean(dim=0),
            "sums": total if world.is_main else torch.zeros_like(total),
        }
    shared = {
        name: value for name, value in tensors.items() if name.startswith(("network.", "momentum.", "best."))
    }
    return Snapshot(values, shared, own)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _by_rank(tensors: Mapping[str, Tensor], prefix: str) -> list[Tensor]:
    part = _part(tensors, prefix)
    return [part[str(rank)] for rank in range(len(part))]
