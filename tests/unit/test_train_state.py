"""Snapshots restore the training state bit for bit, on any number of processes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar, cast

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import SGD

from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.bad_images import BadImage
from train_pytorch_model.loop.checkpoints.checkpoint import Checkpoint, DamagedCheckpointError
from train_pytorch_model.loop.metrics import Metrics
from train_pytorch_model.loop.train_state import MOMENTUM_BUFFER, Snapshot, TrainState, gather, scatter

T = TypeVar("T")
CPU = torch.device("cpu")


def make_state(is_scaled: bool = False) -> TrainState:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.LazyLinear(2))
    network = nn.Sequential(*layers)
    network(torch.zeros(2, 3, 4, 4))
    network.to(memory_format=torch.channels_last)
    optimizer = SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True)
    return TrainState(network, optimizer, GradScaler("cpu", enabled=is_scaled), patience=3, device=CPU)


def train(state: TrainState, steps: int = 1, rank: int = 0) -> None:
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * rank + step + state.position.steps_done)
        images = torch.randn(4, 3, 4, 4, generator=generator).contiguous(memory_format=torch.channels_last)
        loss = state.network(images).square().sum()
        state.scaler.scale(loss).backward()
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.optimizer.zero_grad()
        state.sums.values += loss.item()
        state.position.steps_done += 1


def trained_state(rank: int = 0, is_scaled: bool = False) -> TrainState:
    """A state in which every part has content."""
    state = make_state(is_scaled)
    train(state, 2, rank)
    state.best.observe(1, Metrics(0.25, 0.5, 1.0, 7), state.network)
    state.patience.observe(0.25)
    state.patience.observe(0.5)
    state.position.rejected = {3 + rank: "torn"}
    state.position.history = [{"epoch": 1, "Valid loss": 0.1 + 0.2}]
    state.position.left_out["training"] = [4]
    state.position.bad_images = [BadImage("Training dataset", "a\udcff.png", "a", "gone")]
    state.position.lr_factor = 0.5
    train(state, 1, rank)
    return state


def everything(state: TrainState) -> dict[str, Any]:
    """The complete state, for comparison."""
    momenta = [state.optimizer.state[parameter][MOMENTUM_BUFFER] for parameter in state.network.parameters()]
    return {
        "network": {name: value.tolist() for name, value in state.network.state_dict().items()},
        "momenta": [momentum.tolist() for momentum in momenta],
        "layouts": [momentum.stride() for momentum in momenta],
        "best": (
            state.best.epoch,
            state.best.metrics,
            [(n, v.tolist()) for n, v in state.best.weights.items()],
        ),
        "patience": (state.patience.spent, state.patience.previous_loss),
        "position": asdict(state.position),
        "sums": state.sums.values.tolist(),
        "scaler": state.scaler.state_dict(),
    }


def through_a_file(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as it is read from disk, where JSON turns keys into strings."""
    return Checkpoint(checkpoint.tensors, json.loads(json.dumps(checkpoint.values)))


def alone(snapshot: Snapshot) -> Snapshot:
    world = World(0, 1, 0, 1, CPU)
    checkpoint = gather(snapshot, world)
    assert checkpoint is not None
    back = scatter(through_a_file(checkpoint), world)
    assert back is not None
    return back


@pytest.mark.parametrize("is_from_a_file", [False, True])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_a_restored_state_is_identical_and_trains_identically(is_from_a_file: bool, is_scaled: bool) -> None:
    state = trained_state(is_scaled=is_scaled)
    snapshot = state.snapshot()
    before = everything(state)
    train(state, 2)
    after = everything(state)
    assert after != before

    other = make_state(is_scaled) if is_from_a_file else state
    other.restore(alone(snapshot) if is_from_a_file else snapshot)
    assert everything(other) == before
    train(other, 2)
    assert everything(other) == after


def test_a_snapshot_does_not_change_with_the_state() -> None:
    state = trained_state()
    snapshot = state.snapshot()
    copies = {name: value.clone() for name, value in {**snapshot.shared, **snapshot.own}.items()}
    history = json.dumps(snapshot.values)
    train(state)
    state.position.history.append({"epoch": 2})
    state.position.left_out["training"].append(9)
    assert all(
        torch.equal(value, copies[name]) for name, value in {**snapshot.shared, **snapshot.own}.items()
    )
    assert json.dumps(snapshot.values) == history


def test_a_state_without_momentum_or_best_epoch_is_restored_without_them() -> None:
    state = make_state()
    snapshot = alone(state.snapshot())
    train(state)
    state.best.observe(1, Metrics(1.0, 0.0, 0.0, 1), state.network)
    state.restore(snapshot)
    assert not any(
        MOMENTUM_BUFFER in state.optimizer.state[p]
        for p in state.network.parameters()
        if p in state.optimizer.state
    )
    assert (state.best.epoch, state.best.weights) == (0, {})
    assert state.patience.previous_loss == float("inf")


def test_a_scaler_is_unchanged_if_either_run_has_none() -> None:
    unscaled, scaled = trained_state(), trained_state(is_scaled=True)
    of_unscaled, of_scaled = alone(unscaled.snapshot()), alone(scaled.snapshot())
    scale = scaled.scaler.state_dict()
    scaled.restore(of_unscaled)
    assert scaled.scaler.state_dict() == scale
    unscaled.restore(of_scaled)
    assert unscaled.scaler.state_dict() == {}


def test_best_weights_keep_their_order_and_layout_through_a_checkpoint() -> None:
    state = trained_state()
    other = make_state()
    snapshot = alone(state.snapshot())
    other.restore(Snapshot(snapshot.values, dict(sorted(snapshot.shared.items())), snapshot.own))
    assert list(other.best.weights) == list(state.best.weights)
    strides = [[value.stride() for value in each.best.weights.values()] for each in (state, other)]
    assert strides[0] == strides[1]


# ── Checks of checkpoints ────────────────────────────────────────────────────────────────────────


def whole() -> Checkpoint:
    checkpoint = gather(trained_state().snapshot(), World(0, 1, 0, 1, CPU))
    assert checkpoint is not None
    return through_a_file(checkpoint)


def changed(**tensors: Tensor) -> Checkpoint:
    checkpoint = whole()
    return Checkpoint({**checkpoint.tensors, **tensors}, checkpoint.values)


def without(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def test_a_checkpoint_of_the_same_network_is_accepted() -> None:
    make_state().check(whole())


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        pytest.param(
            changed(**{"network.9.weight": torch.zeros(1)}), "network.9.weight is not part of", id="extra"
        ),
        pytest.param(
            changed(**{"momentum.0.bias": torch.zeros(5)}), "momentum.0.bias is not part of", id="shape"
        ),
        pytest.param(
            changed(**{"best.0.bias": torch.zeros(4, dtype=torch.float64)}),
            "best.0.bias is torch.float64",
            id="type",
        ),
        pytest.param(
            Checkpoint(without(whole().tensors, "network.0.bias"), whole().values),
            "a tensor of the network is missing",
            id="missing",
        ),
        pytest.param(
            Checkpoint(whole().tensors, {}), "its values are not those of a run: 'position'", id="no values"
        ),
        pytest.param(
            Checkpoint(whole().tensors, {**whole().values, "position": {"epoch": "one"}}),
            "its values are not those of a run: Expected `int`, got `str`",
            id="a string for a number",
        ),
        pytest.param(
            Checkpoint(whole().tensors, {**whole().values, "best": {"epoch": 1, "metrics": {"loss": 1}}}),
            "its values are not those of a run: ",
            id="invalid metrics",
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(checkpoint: Checkpoint, reason: str) -> None:
    with pytest.raises(DamagedCheckpointError) as raised:
        make_state().check(checkpoint)
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_single_non_finite_value_is_found_in_weights_and_statistics(value: float) -> None:
    state = trained_state()
    assert state.is_finite()
    state.network.get_buffer("1.running_var")[2] = value
    assert not state.is_finite()
    state = trained_state()
    with torch.no_grad():
        next(iter(state.network.parameters()))[1, 2, 0, 1] = value
    assert not state.is_finite()


# ── Several processes ────────────────────────────────────────────────────────────────────────────


class FakeWorld(World):
    """One of several processes, with given results of its collectives."""

    def __init__(self, rank: int, size: int, results: list[Any]) -> None:
        super().__init__(rank, size, rank, size, CPU)
        object.__setattr__(self, "_results", results)

    def gather(self, values: Any) -> Any:  # noqa: ARG002
        return cast(Any, self)._results[0]

    def gather_on_main(self, values: Any) -> Any:  # noqa: ARG002
        return cast(Any, self)._results[1]

    def broadcast(self, value: T) -> T:
        return value


def gathered(states: list[TrainState]) -> Checkpoint:
    snapshots = [state.snapshot() for state in states]
    rejected = [item for s in snapshots for item in s.values["position"]["rejected"].items()]
    owns = [dict(snapshot.own) for snapshot in snapshots]
    checkpoint = gather(snapshots[0], FakeWorld(0, len(states), [rejected, owns]))
    assert checkpoint is not None
    return through_a_file(checkpoint)


def test_each_process_gets_back_its_own_statistics_and_sums() -> None:
    states = [trained_state(rank) for rank in range(3)]
    checkpoint = gathered(states)
    for rank, state in enumerate(states):
        snapshot = scatter(checkpoint, FakeWorld(rank, 3, []))
        assert snapshot is not None
        assert torch.equal(snapshot.own["sums"], state.sums.values)
        assert torch.equal(snapshot.own["statistics"], state.snapshot().own["statistics"])
        assert snapshot.values["position"]["rejected"] == {"3": "torn", "4": "torn", "5": "torn"}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_another_number_of_processes_gets_mean_statistics_and_the_same_total_sums(size: int) -> None:
    states = [trained_state(rank) for rank in range(3)]
    checkpoint = gathered(states)
    snapshots = [scatter(checkpoint, FakeWorld(rank, size, [])) for rank in range(size)]
    own = [snapshot.own for snapshot in snapshots if snapshot is not None]
    total = torch.stack([state.sums.values for state in states]).sum(dim=0)
    assert torch.equal(torch.stack([each["sums"] for each in own]).sum(dim=0), total)
    mean = torch.stack([state.snapshot().own["statistics"] for state in states]).mean(dim=0)
    assert all(torch.equal(each["statistics"], mean) for each in own)


def test_without_a_checkpoint_no_process_gets_a_snapshot() -> None:
    assert scatter(None, World(0, 1, 0, 1, CPU)) is None


def test_only_the_main_process_gets_the_gathered_checkpoint() -> None:
    assert gather(trained_state().snapshot(), FakeWorld(1, 2, [[], []])) is None
