"""Snapshots restore the training state bit for bit, on any number of processes."""

import json

import pytest
import torch
from tests.snapshots import alone, everything, snapshot_of, start, train, trained
from tests.trainings import ALONE, Training

from train_pytorch_model.networks.cpu_convolutions import adapt_to_cpu
from train_pytorch_model.networks.small_maps import unmet_weights_of
from train_pytorch_model.training.channels_last_sgd import ChannelsLastSGD
from train_pytorch_model.training.metrics import Metrics
from train_pytorch_model.training.optimizer import OptimizerName, delayed_of, momentum_of
from train_pytorch_model.training.snapshot import Snapshot, check, gather, restore, scatter


@pytest.mark.parametrize("is_from_a_file", [False, True])
@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("optimizer_name", ["sgd", "adamw"])
def test_a_restored_state_is_identical_and_trains_identically(
    is_from_a_file: bool, is_scaled: bool, optimizer_name: OptimizerName
) -> None:
    training = trained(is_scaled=is_scaled, optimizer_name=optimizer_name)
    snapshot = snapshot_of(training)
    before = everything(training)
    train(training, 2)
    after = everything(training)
    assert after != before

    other = start(is_scaled, optimizer_name) if is_from_a_file else training
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
    training.state.progress.unreadable_indices["training"].append(9)
    assert all(
        torch.equal(value, copies[name])
        for name, value in {**snapshot.shared, **snapshot.local}.items()
    )
    assert json.dumps(snapshot.values) == history


def test_a_state_without_a_best_epoch_is_restored_without_one() -> None:
    training = start()
    engine, state = training.engine, training.state
    snapshot = alone(snapshot_of(training))
    train(training)
    state.best.observe(1, Metrics(1.0, 0.0, 0.0, 1), engine.network)
    restore(engine, state, snapshot)
    assert not any(value.any() for value in momentum_of(engine.optimizer, engine.network).values())
    assert (state.best.epoch, state.best.weights) == (0, {})


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
    assert [value.stride() for value in best[1].values()] == [
        value.stride() for value in best[0].values()
    ]


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


def test_steps_that_wait_for_all_weights_to_be_needed_go_through_a_checkpoint() -> None:
    training, other = delaying(), delaying()
    steps = torch.randn(3, 3, 2, 2, dtype=torch.float64)
    unmet_weights_of(training.engine.network)["0.weight"].wait(steps)
    checkpoint = gather(snapshot_of(training), ALONE)
    assert checkpoint
    check(other.engine, checkpoint)
    snapshot = scatter(checkpoint, ALONE)
    assert snapshot
    restore(other.engine, other.state, snapshot)
    found = delayed_of(other.engine.network)
    assert found.keys() == {"0.weight"}
    assert torch.equal(found["0.weight"], steps)

    restore(other.engine, other.state, snapshot_of(delaying()))
    assert not delayed_of(other.engine.network)


def delaying() -> Training:
    training = start()
    optimizer, network = training.engine.optimizer, training.engine.network
    assert isinstance(optimizer, ChannelsLastSGD)
    adapt_to_cpu(network)
    optimizer.delay_unmet(network)
    return training
