"""Steps replayed from CUDA graphs: the same results in every precision, compiled or not."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tests.logs import warnings_in
from tests.painting import paint_folders
from tests.trainings import PLAIN, Training, start_training
from torch import Tensor, nn

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cutmix import with_cutmix
from train_pytorch_model.data.loader import start_readers
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import TrainingInputs, open_training_inputs
from train_pytorch_model.networks.batch_norms import freeze_statistics, set_training_mode
from train_pytorch_model.training import cuda_graph_step
from train_pytorch_model.training.batches import open_batches
from train_pytorch_model.training.cuda_graph_step import DECIDED_AT, WARMUP_STEPS, CudaGraphStep
from train_pytorch_model.training.flat_gradients import FlatGradients
from train_pytorch_model.training.margins import UNIT
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.optimizer import OptimizerName, make_optimizer, momentum_of
from train_pytorch_model.training.precision import choose_precision
from train_pytorch_model.training.step import TrainStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

SIZES = [8, 7] * 8  # like an epoch that does not divide evenly into batches


def make_step(
    precision: str = "float32",
    keeps_statistics: bool = False,
    optimizer_name: OptimizerName = "sgd",
) -> TrainStep:
    """With frozen statistics, as in fine-tuning, the head has its own learning rate."""
    device = torch.device("cuda", 0)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    model = network.to(device).to(memory_format=torch.channels_last)
    factors = dict.fromkeys(model.parameters(), 1.0)
    if keeps_statistics:
        freeze_statistics(model)
        set_training_mode(model)
        factors = dict.fromkeys(model.parameters(), 0.25) | dict.fromkeys(
            model[-1].parameters(), 0.5
        )
    chosen = choose_precision(precision, device)

    class Floats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = model

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.network(images.float() / 255)
            return logits

    world = World(0, 1, 0, 1, device)
    optimizer = make_optimizer(model, factors, optimizer_name)
    return TrainStep(Floats(), optimizer, chosen.scaler(device), PLAIN, chosen, world)


def batches(sizes: list[int], side: int = 9) -> list[Batch]:
    random = np.random.default_rng(0)
    found = []
    for size in sizes:
        pixels = torch.from_numpy(random.integers(0, 256, (size, side, side, 3), dtype=np.uint8))
        targets = torch.from_numpy(random.integers(0, 3, size))
        images = pixels.permute(0, 3, 1, 2).cuda()
        found.append(Batch(images, targets.cuda(), np.arange(size), size, {}))
    return found


def trained(
    step: TrainStep | CudaGraphStep,
    network: nn.Module,
    sizes: list[int],
    side: int = 9,
    cutmix: float = 0.0,
) -> dict[str, Tensor]:
    sums, margins = Sums(torch.device("cuda", 0)), []
    for number, batch in enumerate(batches(sizes, side)):
        torch.manual_seed(number)  # for dropout, as in training
        targets = PLAIN.as_probabilities(batch.targets)
        taken = with_cutmix(batch, targets, cutmix, seed=number) if cutmix else batch
        margins.append(step(taken, 0.1 / (1 + number), sums).margins[0] / UNIT)  # a copy
    return {**network.state_dict(), "sums": sums.values, "margins": torch.cat(margins)}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("keeps_statistics", "cutmix"), [(False, 0.0), (True, 0.0), (True, 0.5)])
def test_replayed_steps_compute_the_same_as_eager_ones(
    precision: str, keeps_statistics: bool, cutmix: float
) -> None:
    plain, wrapped = make_step(precision, keeps_statistics), make_step(precision, keeps_statistics)
    captured = CudaGraphStep(wrapped, lambda _: None)
    expected = trained(plain, plain.model, SIZES, cutmix=cutmix)
    found = trained(captured, wrapped.model, SIZES, cutmix=cutmix)
    assert len(captured._captured) == 2
    assert captured._num_warmups == {(8, 8): WARMUP_STEPS, (7, 7): WARMUP_STEPS}
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-3, msg=name)
    assert found["sums"][3] == sum(SIZES)
    assert torch.equal(found["network.1.running_mean"].cpu(), torch.zeros(8)) is keeps_statistics


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_gradients_are_averaged_by_nccl_between_two_graphs(precision: str) -> None:
    """A single rank: the mean over it is what an eager step computes."""
    plain, wrapped = make_step(precision), make_step(precision)
    device = wrapped.world.device
    store = dist.HashStore()  # type: ignore[attr-defined]  # which torch does export
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=device)
    try:
        expected = trained(plain, plain.model, SIZES)
        step = replace(wrapped, gradients=FlatGradients(wrapped.model.parameters()))
        wrapped.world.broadcast_(step.model)
        captured = CudaGraphStep(step, lambda _: None)
        found = trained(captured, step.model, SIZES)
    finally:
        dist.destroy_process_group()
    assert [len(each.graphs) for each in captured._captured.values()] == [2, 2]
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize("optimizer_name", ["sgd", "adamw"])
def test_replayed_steps_continue_from_a_restored_state(optimizer_name: OptimizerName) -> None:
    step = make_step(optimizer_name=optimizer_name)
    captured, sums = CudaGraphStep(step, lambda _: None), Sums(torch.device("cuda", 0))

    def train_further() -> dict[str, Tensor]:
        for number, batch in enumerate(batches(SIZES)):
            torch.manual_seed(number)
            captured(batch, 0.01, sums)
        return {name: value.clone() for name, value in step.model.state_dict().items()}

    train_further()
    assert len(captured._captured) == 2
    weights = copy.deepcopy(step.model.state_dict())
    momenta = {key: value.clone() for key, value in momentum_of(step.optimizer, step.model).items()}
    expected = train_further()
    step.model.load_state_dict(weights)
    for key, value in momentum_of(step.optimizer, step.model).items():
        value.copy_(momenta[key])
    for name, value in train_further().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-3, msg=name)


def test_steps_on_larger_images_are_captured_again() -> None:
    plain, wrapped = make_step(), make_step()
    captured = CudaGraphStep(wrapped, lambda _: None)
    for side in (9, 12):
        expected = trained(plain, plain.model, SIZES, side)
        found = trained(captured, wrapped.model, SIZES, side)
        shapes = {tuple(one.images.shape) for one in captured._captured.values()}
        assert shapes == {(8, 3, side, side), (7, 3, side, side)}
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-3, msg=name)


def test_a_batch_with_unreadable_images_runs_eagerly() -> None:
    step = make_step()
    captured = CudaGraphStep(step, lambda _: None)
    sums = Sums(torch.device("cuda", 0))
    for batch in batches([8] * 5):
        captured(batch, 0.1, sums)
    before = step.model.state_dict()["network.0.weight"].clone()
    (rest,) = batches([6])
    captured(Batch(rest.images, rest.targets, rest.indices, 8, {6: "torn", 7: "torn"}), 0.1, sums)
    assert not torch.equal(step.model.state_dict()["network.0.weight"], before)
    assert sums.values[3] == 46


def test_a_step_that_takes_most_of_the_memory_is_not_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_graph_step, "MAX_MEMORY_FRACTION", 0.0)
    step = make_step()
    captured = CudaGraphStep(step, lambda _: None)
    trained(captured, step.model, [8] * 6)
    assert captured._captured == {}


def test_a_memory_efficient_network_trains_eagerly() -> None:
    step = make_step()
    step.model.memory_efficient = True  # type: ignore[assignment]
    captured = CudaGraphStep(step, lambda _: None)
    found = trained(captured, step.model, [8] * 8)
    assert captured._captured == {}
    assert found["sums"][3] == 64


def test_long_trainings_are_compiled_once_per_size_and_captured_again() -> None:
    step = make_step()
    asked = []

    class Compiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = step.model

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.model(images)
            return logits

    def compiled(shape: Sequence[int]) -> nn.Module:
        asked.append(shape[0])
        return Compiled()

    captured = CudaGraphStep(step, compiled)
    captured.remaining_steps = 1 << 40
    trained(captured, step.model, [8] * DECIDED_AT)
    trained(captured, step.model, [8, 7, 6] * 10)
    assert asked == [8, 7]
    assert isinstance(captured._compiled[8].model, Compiled)
    assert set(captured._captured) == {(8, 8), (7, 7), (6, 6)}


# Loading the compiler of PyTorch 2.11 warns of what it uses itself.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_pretrained", [False, True])
def test_training_continues_whether_or_not_compiling_fails(
    tmp_path: Path,
    untrained_resnet18: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: bool,
    is_pretrained: bool,
) -> None:
    monkeypatch.setattr(cuda_graph_step, "COMPILING_PAYS_S", 0.0)
    if fails:
        monkeypatch.setattr(torch, "compile", lambda *_, **__: _broken)
    images = paint_folders(tmp_path / "images", 60)
    inputs = open_training_inputs(untrained_resnet18, images, images).with_flips(True)
    inputs = replace(inputs, model=replace(inputs.model, is_pretrained=is_pretrained))
    training = train_two_epochs(inputs)
    assert [text.split(" (")[0] for text in warnings_in(caplog)] == (
        ["The network cannot be compiled"] if fails else []
    )
    captured = training.engine.take_step
    assert isinstance(captured, CudaGraphStep)
    assert bool(captured._compiled) is not fails
    assert training.state.best.metrics.loss < math.log(3)


def test_small_early_images_are_followed_by_large_ones(
    tmp_path: Path, untrained_resnet18: Path
) -> None:
    images = paint_folders(tmp_path / "images", 20, size=(96, 96))
    inputs = open_training_inputs(untrained_resnet18, images, images).with_flips(True)
    training = train_two_epochs(replace(inputs, recipe=replace(inputs.recipe, early_size=(64, 64))))
    captured = training.engine.take_step
    assert isinstance(captured, CudaGraphStep)
    shapes = [tuple(one.images.shape) for one in captured._captured.values()]
    assert shapes == [(4, 3, 96, 96)]
    assert training.state.best.metrics.loss < math.log(3)


def train_two_epochs(inputs: TrainingInputs) -> Training:
    """Train for two epochs at four images per step, synchronizing at each step."""
    world = World(0, 1, 0, 1, torch.device("cuda", 0))
    training = start_training(
        TrainConfig(batch_size=4, epochs=2, learning_rate=0.01), inputs, world
    )
    with start_readers(world) as readers, open_batches(training.engine, readers) as batches:
        for _ in range(2):
            training.train(batches, lambda _: torch.cuda.synchronize())
            training.validate(batches)
            training.state.close_epoch(training.engine.network)
    return training


def _broken(*_: object) -> Tensor:
    raise RuntimeError("no compiler\nand many lines more")
