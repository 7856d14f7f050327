"""Snapshots restore the training state bit for bit, on any number of processes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pytest
import torch
from tests.painting import paint_folders
from tests.trainings import ALONE, Training
from torch import Tensor, nn
from torch.amp import GradScaler

from train_pytorch_model.data.loader import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.bad_images import BadImage
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.loop.checkpoints.checkpoint import Checkpoint, DamagedCheckpointError
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.margins import UNIT, merge
from train_pytorch_model.loop.metrics import Metrics, Sums
from train_pytorch_model.loop.optimizer import MOMENTUM_BUFFER, make_optimizer, set_learning_rate
from train_pytorch_model.loop.plan import Plan, make_plan
from train_pytorch_model.loop.snapshot import Snapshot, check, gather, restore, scatter, take_snapshot
from train_pytorch_model.loop.state import State
from train_pytorch_model.loop.step import StepOutput
from train_pytorch_model.words.config import TrainConfig

T = TypeVar("T")
CPU = torch.device("cpu")
PLANS: list[Plan] = []


@pytest.fixture(scope="module", autouse=True)
def plan(tmp_path_factory: pytest.TempPathFactory, untrained_resnet18: Path) -> Plan:
    """The plan of all trainings here, for 6 training images in batches of 4."""
    images = paint_folders(tmp_path_factory.mktemp("images") / "images", 2)
    inputs = open_training_inputs(untrained_resnet18, images, images)
    PLANS.append(make_plan(TrainConfig(batch_size=4), inputs.with_flips(True), ALONE))
    return PLANS[-1]


def start(is_scaled: bool = False) -> Training:
    """A training of a small network."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.LazyLinear(2))
    network = nn.Sequential(*layers)
    network(torch.zeros(2, 3, 4, 4))
    network.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(network)
    set_learning_rate(optimizer, 0.1)
    scaler = GradScaler("cpu", enabled=is_scaled)
    engine = Engine(
        PLANS[-1], network, network, optimizer, scaler, no_step, torch.default_generator.manual_seed
    )
    return Training(engine, State(PLANS[-1]))


def no_step(batch: Batch, lr: float, sums: Sums) -> StepOutput:
    raise NotImplementedError("these trainings take their own steps")


def train(training: Training, steps: int = 1, rank: int = 0) -> None:
    engine, progress = training.engine, training.state.progress
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * rank + step + progress.steps_done)
        images = torch.randn(4, 3, 4, 4, generator=generator).contiguous(memory_format=torch.channels_last)
        loss = engine.network(images).square().sum()
        engine.scaler.scale(loss).backward()
        engine.scaler.step(engine.optimizer)
        engine.scaler.update()
        engine.optimizer.zero_grad()
        training.state.sums.values += loss.item()
        indices = torch.randperm(6, generator=generator)[:4].numpy()
        margins = torch.randint(UNIT, (2, 4), generator=generator, dtype=torch.int32)
        training.state.margins.add(indices, progress.epoch, margins)
        progress.steps_done += 1
        progress.images_done += 4


def trained(rank: int = 0, is_scaled: bool = False) -> Training:
    """A training in which every part of the state has content."""
    training = start(is_scaled)
    train(training, 2, rank)
    state = training.state
    state.best.observe(1, Metrics(0.25, 0.5, 1.0, 7), training.engine.network)
    state.patience.observe(0.25)
    state.patience.observe(0.5)
    state.progress.rejected = {3 + rank: "torn"}
    state.progress.history = [{"epoch": 1, "Valid loss": 0.1 + 0.2}]
    state.progress.left_out["training"] = [4]
    state.progress.bad_images = [BadImage("Training dataset", "a\udcff.png", "a", "gone")]
    state.progress.lr_factor = 0.5
    train(training, 1, rank)
    return training


def snapshot_of(training: Training) -> Snapshot:
    return take_snapshot(training.engine, training.state)


def everything(training: Training) -> dict[str, Any]:
    """The complete state, for comparison."""
    engine, state = training.engine, training.state
    momenta = [engine.optimizer.state[weight][MOMENTUM_BUFFER] for weight in engine.network.parameters()]
    return {
        "network": {name: value.tolist() for name, value in engine.network.state_dict().items()},
        "momenta": [momentum.tolist() for momentum in momenta],
        "layouts": [momentum.stride() for momentum in momenta],
        "best": (
            state.best.epoch,
            state.best.metrics,
            [(n, v.tolist()) for n, v in state.best.weights.items()],
        ),
        "patience": (state.patience.spent, state.patience.previous_loss),
        "progress": {**asdict(state.progress), "run_s": 0.0},
        "sums": state.sums.values.tolist(),
        "margins": state.margins.values.tolist(),
        "scaler": engine.scaler.state_dict(),
    }


def through_a_file(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as it is read from disk, where JSON turns keys into strings."""
    return Checkpoint(checkpoint.tensors, json.loads(json.dumps(checkpoint.values)))


def alone(snapshot: Snapshot) -> Snapshot:
    checkpoint = gather(snapshot, ALONE)
    assert checkpoint is not None
    back = scatter(through_a_file(checkpoint), ALONE)
    assert back is not None
    return back


@pytest.mark.parametrize("is_from_a_file", [False, True])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_a_restored_state_is_identical_and_trains_identically(is_from_a_file: bool, is_scaled: bool) -> None:
    training = trained(is_scaled=is_scaled)
    snapshot = snapshot_of(training)
    before = everything(training)
    train(training, 2)
    after = everything(training)
    assert after != before

    other = start(is_scaled) if is_from_a_file else training
    restore(other.engine, other.state, alone(snapshot) if is_from_a_file else snapshot)
    assert everything(other) == before
    assert len(other.state.images["training"]) == 5
    train(other, 2)
    assert everything(other) == after


def test_a_snapshot_does_not_change_with_the_state() -> None:
    training = trained()
    snapshot = snapshot_of(training)
    copies = {name: value.clone() for name, value in {**snapshot.shared, **snapshot.local}.items()}
    history = json.dumps(snapshot.values)
    train(training)
    training.state.progress.history.append({"epoch": 2})
    training.state.progress.left_out["training"].append(9)
    assert all(
        torch.equal(value, copies[name]) for name, value in {**snapshot.shared, **snapshot.local}.items()
    )
    assert json.dumps(snapshot.values) == history


def test_a_state_without_a_best_epoch_is_restored_without_one() -> None:
    training = start()
    engine, state = training.engine, training.state
    snapshot = alone(snapshot_of(training))
    train(training)
    state.best.observe(1, Metrics(1.0, 0.0, 0.0, 1), engine.network)
    restore(engine, state, snapshot)
    assert not any(values[MOMENTUM_BUFFER].any() for values in engine.optimizer.state.values())
    assert (state.best.epoch, state.best.weights) == (0, {})
    assert state.patience.previous_loss == float("inf")


def test_a_scaler_is_unchanged_if_either_run_has_none() -> None:
    unscaled, scaled = trained(), trained(is_scaled=True)
    of_unscaled, of_scaled = alone(snapshot_of(unscaled)), alone(snapshot_of(scaled))
    scale = scaled.engine.scaler.state_dict()
    restore(scaled.engine, scaled.state, of_unscaled)
    assert scaled.engine.scaler.state_dict() == scale
    restore(unscaled.engine, unscaled.state, of_scaled)
    assert unscaled.engine.scaler.state_dict() == {}


def test_best_weights_keep_their_order_and_layout_through_a_checkpoint() -> None:
    training, other = trained(), start()
    snapshot = alone(snapshot_of(training))
    shuffled = Snapshot(snapshot.values, dict(sorted(snapshot.shared.items())), snapshot.local)
    restore(other.engine, other.state, shuffled)
    best = [each.state.best.weights for each in (training, other)]
    assert list(best[1]) == list(best[0])
    assert [value.stride() for value in best[1].values()] == [value.stride() for value in best[0].values()]


# ── Checks of checkpoints ────────────────────────────────────────────────────────────────────────


def whole() -> Checkpoint:
    checkpoint = gather(snapshot_of(trained()), ALONE)
    assert checkpoint is not None
    return through_a_file(checkpoint)


def changed(**tensors: Tensor) -> Checkpoint:
    checkpoint = whole()
    return Checkpoint({**checkpoint.tensors, **tensors}, checkpoint.values)


def without(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def test_a_checkpoint_of_the_same_network_is_accepted() -> None:
    check(start().engine, whole())


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        pytest.param(
            lambda: changed(**{"network.9.weight": torch.zeros(1)}),
            "network.9.weight does not fit",
            id="extra",
        ),
        pytest.param(
            lambda: changed(**{"momentum.0.bias": torch.zeros(5)}),
            "momentum.0.bias does not fit",
            id="shape",
        ),
        pytest.param(
            lambda: changed(**{"best.0.bias": torch.zeros(4, dtype=torch.float64)}),
            "best.0.bias does not fit",
            id="type",
        ),
        pytest.param(
            lambda: Checkpoint(without(whole().tensors, "network.0.bias"), whole().values),
            "a tensor of the network is missing",
            id="missing",
        ),
        pytest.param(
            lambda: Checkpoint(without(whole().tensors, "momentum.0.bias"), whole().values),
            "a tensor of the network is missing",
            id="no momentum",
        ),
        pytest.param(
            lambda: Checkpoint(whole().tensors, {}),
            "its values are not those of a run: 'position'",
            id="no values",
        ),
        pytest.param(
            lambda: Checkpoint(whole().tensors, {**whole().values, "position": {"epoch": "one"}}),
            "its values are not those of a run: Expected `int`, got `str`",
            id="a string for a number",
        ),
        pytest.param(
            lambda: Checkpoint(
                whole().tensors, {**whole().values, "best": {"epoch": 1, "metrics": {"loss": 1}}}
            ),
            "its values are not those of a run: ",
            id="invalid metrics",
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(checkpoint: Callable[[], Checkpoint], reason: str) -> None:
    with pytest.raises(DamagedCheckpointError) as raised:
        check(start().engine, checkpoint())
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_single_non_finite_value_is_found_in_weights_and_statistics(value: float) -> None:
    engine = trained().engine
    assert engine.is_finite()
    engine.network.get_buffer("1.running_var")[2] = value
    assert not engine.is_finite()
    engine = trained().engine
    with torch.no_grad():
        next(engine.network.parameters())[1, 2, 0, 1] = value
    assert not engine.is_finite()


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


def gathered(trainings: list[Training]) -> Checkpoint:
    snapshots = [snapshot_of(training) for training in trainings]
    rejected = [item for s in snapshots for item in s.values["position"]["rejected"].items()]
    local = [dict(snapshot.local) for snapshot in snapshots]
    checkpoint = gather(snapshots[0], FakeWorld(0, len(trainings), [rejected, local]))
    assert checkpoint is not None
    return through_a_file(checkpoint)


def test_each_process_gets_back_its_own_statistics_and_sums() -> None:
    trainings = [trained(rank) for rank in range(3)]
    checkpoint = gathered(trainings)
    for rank, training in enumerate(trainings):
        snapshot = scatter(checkpoint, FakeWorld(rank, 3, []))
        assert snapshot is not None
        assert torch.equal(snapshot.local["sums"], training.state.sums.values)
        assert torch.equal(snapshot.local["statistics"], snapshot_of(training).local["statistics"])
        assert snapshot.values["position"]["rejected"] == {"3": "torn", "4": "torn", "5": "torn"}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_another_number_of_processes_gets_mean_statistics_and_the_same_total_sums(size: int) -> None:
    trainings = [trained(rank) for rank in range(3)]
    checkpoint = gathered(trainings)
    snapshots = [scatter(checkpoint, FakeWorld(rank, size, [])) for rank in range(size)]
    local = [snapshot.local for snapshot in snapshots if snapshot is not None]
    total = torch.stack([training.state.sums.values for training in trainings]).sum(dim=0)
    assert torch.equal(torch.stack([each["sums"] for each in local]).sum(dim=0), total)
    mean = torch.stack([snapshot_of(training).local["statistics"] for training in trainings]).mean(dim=0)
    assert all(torch.equal(each["statistics"], mean) for each in local)


def test_hashes_of_all_machines_are_known_again() -> None:
    """The second process shares the memory of the first, and so has none itself."""
    hashes = np.random.default_rng(1).integers(1, 256, (6, 16), dtype=np.uint8)
    trainings = [trained(rank) for rank in range(3)]
    for training, known in ((trainings[0], range(3)), (trainings[2], range(2, 5))):
        training.state.hashes = np.zeros((6, 16), np.uint8)
        training.state.hashes[known] = hashes[known]
    checkpoint = gathered(trainings)
    for size in (1, 3):
        snapshot = scatter(checkpoint, FakeWorld(0, size, []))
        assert snapshot is not None
        resumed = start()
        resumed.state.hashes = np.zeros((6, 16), np.uint8)
        restore(resumed.engine, resumed.state, snapshot)
        assert (resumed.state.hashes[:5] == hashes[:5]).all()
        assert not resumed.state.hashes[5].any()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_any_number_of_processes_continues_with_the_same_margins(size: int) -> None:
    trainings = [trained(rank) for rank in range(3)]
    resumed = [start() for _ in range(size)]
    checkpoint = gathered(trainings)
    for rank, training in enumerate(resumed):
        snapshot = scatter(checkpoint, FakeWorld(rank, size, []))
        assert snapshot is not None
        restore(training.engine, training.state, snapshot)
    before, after = (merge([each.state.margins.values for each in of]) for of in (trainings, resumed))
    assert before[0].count_nonzero() == 6
    assert torch.equal(before, after)


def test_a_checkpoint_from_before_margins_resumes_without_them() -> None:
    checkpoint = gathered([trained()])
    tensors = {name: value for name, value in checkpoint.tensors.items() if name != "margins"}
    old = Checkpoint(tensors, {**checkpoint.values, "version": 1})
    training = trained()
    check(training.engine, old)
    snapshot = scatter(old, ALONE)
    assert snapshot is not None
    restore(training.engine, training.state, snapshot)
    assert not training.state.margins.values.any()


def test_margins_of_other_images_are_damage() -> None:
    checkpoint = gathered([trained()])
    damaged = Checkpoint({**checkpoint.tensors, "margins": torch.zeros(3, 5)}, checkpoint.values)
    with pytest.raises(DamagedCheckpointError, match="margins"):
        check(start().engine, damaged)


def test_without_a_checkpoint_no_process_gets_a_snapshot() -> None:
    assert scatter(None, ALONE) is None


def test_only_the_main_process_gets_the_gathered_checkpoint() -> None:
    assert gather(snapshot_of(trained()), FakeWorld(1, 2, [[], []])) is None
