"""Replayed steps of several GPUs, simulated: two graphs a step, and one average of all gradients
between.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.cuda_simulation import simulate_cuda
from tests.trainings import PLAIN
from torch import Tensor, nn
from torch.amp import GradScaler

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.training.cuda_graph_step import DECIDED_AT, WARMUP_STEPS, CudaGraphStep
from train_pytorch_model.training.flat_gradients import FlatGradients
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.optimizer import make_optimizer, momentum_of
from train_pytorch_model.training.precision import Precision
from train_pytorch_model.training.step import TrainStep
from train_pytorch_model.training.trial_passes import TrialPasses

CPU = torch.device("cpu")
FLOAT32 = Precision(torch.float32, "")
SIZES = (
    [4] * 6 + [3, 2] + [4, 3] * 4
)  # 2: unreadable images leave fewer than the half of six that is planned
PLANNED = {4: 8, 3: 6, 2: 6}


@dataclass(frozen=True)
class Mirrored(World):
    """A world of two processes with the same images: the mean of their gradients is that of one."""

    averaged: list[int] = field(default_factory=list)
    compared: list[float] = field(default_factory=list)
    slowest_s: float = 0.0
    """What a step takes in the other process."""

    def average_(self, values: Tensor) -> None:
        self.averaged.append(len(values))

    def max(self, values: Tensor) -> Tensor:
        self.compared.append(float(values))
        return values.clamp(min=self.slowest_s)


def make_step(world: World) -> TrainStep:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 3)
    ).to(memory_format=torch.channels_last)
    gradients = FlatGradients(model.parameters()) if world.size > 1 else None
    optimizer = make_optimizer(model, dict.fromkeys(model[-1].parameters(), 0.5))

    scaler = GradScaler("cpu", enabled=False)
    return TrainStep(Floats(model), optimizer, scaler, PLAIN, FLOAT32, world, gradients=gradients)


class Floats(nn.Module):
    """uint8 images → logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images.float() / 255)
        return logits


def state_of(step: TrainStep, sums: Sums) -> list[Tensor]:
    momenta = list(momentum_of(step.optimizer, step.model).values())
    return [*step.model.state_dict().values(), *momenta, sums.values]


def train(
    step: TrainStep | CudaGraphStep, sums: Sums, sizes: Sequence[int], world_size: int
) -> list[Tensor]:
    """Take steps of so many images each; return the margins of each."""
    random, margins = np.random.default_rng(0), []
    for number, size in enumerate(sizes):
        images = torch.from_numpy(random.integers(0, 256, (size, 9, 9, 3), dtype=np.uint8)).permute(
            0, 3, 1, 2
        )
        targets = torch.from_numpy(random.integers(0, 3, size))
        planned = PLANNED[size] * world_size // 2
        batch = Batch(images, targets, np.arange(size), planned, {})
        margins.append(step(batch, 0.1 / (1 + number), sums).margins.clone())
    return margins


def test_replayed_steps_of_two_processes_compute_the_same_as_eager_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eager, sums = make_step(World(0, 1, 0, 1, CPU)), Sums(CPU)
    expected = train(eager, sums, SIZES, world_size=1)
    world = Mirrored(0, 2, 0, 2, CPU)
    step, found_sums = make_step(world), Sums(CPU)
    simulate_cuda(monkeypatch, lambda: state_of(step, found_sums))
    captured = CudaGraphStep(step, lambda _: None)
    found = train(captured, found_sums, SIZES, world_size=2)
    graphs: Mapping[tuple[int, int], Any] = {
        kind: each.graphs for kind, each in captured._captured.items()
    }
    assert {kind: [graph.replays for graph in each] for kind, each in graphs.items()} == {
        (4, 8): [10 - WARMUP_STEPS] * 2,
        (3, 6): [5 - WARMUP_STEPS] * 2,
    }
    for tensor, value in zip(state_of(step, found_sums), state_of(eager, sums), strict=True):
        assert torch.equal(tensor, value)
    assert all(map(torch.equal, found, expected))
    num_weights = sum(parameter.numel() for parameter in step.model.parameters())
    assert world.averaged == [num_weights] * len(SIZES)  # in every step, eager or replayed: once


@pytest.mark.parametrize("slowest_s", [0.0, 1e6])
def test_the_slowest_process_decides_for_all_whether_to_compile(
    monkeypatch: pytest.MonkeyPatch, slowest_s: float
) -> None:
    world, compiled = Mirrored(0, 2, 0, 2, CPU, slowest_s=slowest_s), []
    step, sums = make_step(world), Sums(CPU)
    simulate_cuda(monkeypatch, lambda: state_of(step, sums))

    def compile_for(shape: Sequence[int]) -> nn.Module | None:
        compiled.append(tuple(shape))
        return None  # it fails here

    captured = CudaGraphStep(step, compile_for)
    captured.remaining_steps = 100
    train(captured, sums, [4] * (DECIDED_AT + 5), world_size=2)
    assert world.compared == [1.0]
    assert compiled == ([(4, 3, 9, 9)] if slowest_s else [])
    captured._reset_for(torch.Size())
    train(captured, sums, [2] * (DECIDED_AT + 1), world_size=2)  # none is whole, so none is timed
    assert world.compared == [
        1.0,
        0.0,
    ]  # asked all the same: the other process waits for the answer


def test_gradients_are_added_up_in_one_tensor_in_the_formats_of_the_weights() -> None:
    step = make_step(Mirrored(0, 2, 0, 2, CPU))
    assert step.gradients
    images = torch.randint(0, 256, (4, 3, 9, 9), dtype=torch.uint8)
    batch = Batch(images, torch.tensor([0, 1, 2, 0]), np.arange(4), 8, {})
    step.gradients.values.fill_(7.0)  # of the step before
    step.compute_gradients(batch, Sums(CPU))
    parts = []
    for parameter in step.model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.stride() == parameter.stride()
        parts.append(parameter.grad.clone())
    step.model.zero_grad(set_to_none=True)
    logits = step.model(images)
    (F.cross_entropy(logits, batch.targets, reduction="sum") * (2 / 8)).backward()  # type: ignore[no-untyped-call]
    for parameter, part in zip(step.model.parameters(), parts, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, part)
    assert sum(part.sum() for part in parts) == pytest.approx(
        float(step.gradients.values.sum()), abs=1e-5
    )


@pytest.mark.parametrize(("averaged_s", "expected"), [(0.002, True), (0.02, False)])
def test_gradients_are_averaged_at_once_if_that_takes_little(
    monkeypatch: pytest.MonkeyPatch, averaged_s: float, expected: bool
) -> None:
    """The other process takes longer for both than this one."""
    clock = [0.0]

    class Slow(Mirrored):
        def average_(self, values: Tensor) -> None:
            clock[0] += averaged_s
            super().average_(values)

        def max(self, values: Tensor) -> Tensor:
            return values * 1.5

    def take_a_pass(*_: object) -> None:
        clock[0] += 0.1

    world = Slow(0, 2, 0, 2, CPU)
    step = make_step(world)
    simulate_cuda(monkeypatch, list)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    trials = TrialPasses(step.model, step.model, step.optimizer, Framing(9, 9, 1.0), FLOAT32, world)
    monkeypatch.setattr(trials, "_pass", take_a_pass)
    assert step.gradients
    assert trials.is_averaging_fast(step.gradients, 4) is expected
