"""Trainings of a small network, of which a test takes snapshots."""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler

from tests import classic_models
from tests.painting import paint_folders
from tests.trainings import ALONE, Training
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.training.checkpoint_files import Checkpoint
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.fine_tuning import LearningRateFactors
from train_pytorch_model.training.margins import UNIT
from train_pytorch_model.training.metrics import Metrics, Sums
from train_pytorch_model.training.optimizer import (
    OptimizerName,
    make_optimizer,
    momentum_of,
    set_learning_rate,
)
from train_pytorch_model.training.plan import Plan, make_plan
from train_pytorch_model.training.snapshot import Snapshot, gather, scatter, take_snapshot
from train_pytorch_model.training.state import State
from train_pytorch_model.training.step import StepOutput

CPU = torch.device("cpu")


@cache
def plan() -> Plan:
    """The plan of all these trainings, for 6 training images in batches of 4."""
    with TemporaryDirectory() as name:
        images = paint_folders(Path(name) / "images", 2)
        inputs = open_training_inputs(
            classic_models.write(Path(name) / "untrained"), images, images
        )
        return make_plan(TrainConfig(batch_size=4), inputs.with_flips(True), ALONE)


def start(is_scaled: bool = False, optimizer_name: OptimizerName = "sgd") -> Training:
    """A training of a small network."""
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 2, 1),
        nn.Flatten(),
        nn.LazyLinear(2),
    )
    network = nn.Sequential(*layers)
    network(torch.zeros(2, 3, 4, 4))
    network.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(network, name=optimizer_name)
    set_learning_rate(optimizer, 0.1)
    scaler = GradScaler("cpu", enabled=is_scaled)
    lr_factors = LearningRateFactors()
    engine = Engine(plan(), network, network, optimizer, scaler, no_step, lr_factors, None)
    return Training(engine, State(plan()))


def no_step(batch: Batch, lr: float, sums: Sums) -> StepOutput:
    raise NotImplementedError("these trainings take their own steps")


def train(training: Training, steps: int = 1, rank: int = 0) -> None:
    engine, progress = training.engine, training.state.progress
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * rank + step + progress.steps_done)
        images = torch.randn(4, 3, 4, 4, generator=generator).contiguous(
            memory_format=torch.channels_last
        )
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


def trained(
    rank: int = 0, is_scaled: bool = False, optimizer_name: OptimizerName = "sgd"
) -> Training:
    """A training in which every part of the state has content."""
    training = start(is_scaled, optimizer_name)
    train(training, 2, rank)
    state = training.state
    state.best.observe(1, Metrics(0.25, 0.5, 1.0, 7), training.engine.network)
    state.progress.newly_unreadable = {3 + rank: "torn"}
    state.progress.history = [{"epoch": 1, "Valid loss": 0.1 + 0.2}]
    state.progress.unreadable_indices["training"] = [4]
    state.progress.unreadable_images = [
        UnreadableImage("Training dataset", "a\udcff.png", "a", "gone")
    ]
    state.progress.lr_factor = 0.5
    train(training, 1, rank)
    return training


def snapshot_of(training: Training) -> Snapshot:
    return take_snapshot(training.engine, training.state)


def everything(training: Training) -> dict[str, Any]:
    """The complete state, for comparison."""
    engine, state = training.engine, training.state
    momenta = momentum_of(engine.optimizer, engine.network).values()
    return {
        "network": {name: value.tolist() for name, value in engine.network.state_dict().items()},
        "momenta": [momentum.tolist() for momentum in momenta],
        "layouts": [momentum.stride() for momentum in momenta],
        "best": (
            state.best.epoch,
            state.best.metrics,
            [(n, v.tolist()) for n, v in state.best.weights.items()],
        ),
        "progress": {**asdict(state.progress), "run_s": 0.0},
        "sums": state.sums.values.tolist(),
        "margins": state.margins.tensor().tolist(),
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
