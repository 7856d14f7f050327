"""The training step alone on a GPU: eager, replayed as a CUDA graph, and compiled and replayed."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tests.benchmarks.timing import arguments, measure_in_turn, paint_photos, show
from tests.trainings import start_training
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.networks.batch_norms import set_training_mode
from train_pytorch_model.training.cuda_graph_step import TIMED_STEPS, WARMUP_STEPS, CudaGraphStep
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.step import TrainStep
from train_pytorch_model.training.trial_passes import TrialPasses

MEASURED_S = 2.0


def main() -> None:
    """Print images per second of each way."""
    parser = arguments(__doc__, images=False)
    parser.add_argument("--architecture", default="resnet50")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument(
        "--pretrained", action="store_true", help="with batch norms as in fine-tuning"
    )
    parser.add_argument(
        "--compile", action="store_true", help="measure this too; it takes a minute or two"
    )
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no GPU here.")
    with join_world() as world, tempfile.TemporaryDirectory() as folder:
        engine, batch = _engine(chosen, Path(folder), world), _batch(chosen, world)
        assert isinstance(engine.take_step, CudaGraphStep)
        eager, sums = engine.take_step._step, Sums(world.device)
        ways: dict[str, Callable[[], object]] = {"eager": lambda: eager(batch, 0.001, sums)}
        ways["replayed"] = _replayed(engine, eager, batch, is_long=False)
        if chosen.compile:
            ways["compiled and replayed"] = _replayed(engine, eager, batch, is_long=True)
        show(
            measure_in_turn(
                {name: partial(_rate, step, chosen.batch_size) for name, step in ways.items()},
                chosen.repeats,
            )
        )


def _engine(chosen: argparse.Namespace, folder: Path, world: World) -> Engine:
    images, untrained = paint_photos(folder / "images", 2), folder / "untrained"
    recipe = Recipe(image_size=chosen.image_size, training_size=chosen.image_size)
    InitModel(architecture=chosen.architecture, output=untrained, recipe=recipe).run()
    inputs = open_training_inputs(untrained, images, images).with_flips(True)
    inputs = replace(inputs, model=replace(inputs.model, is_pretrained=chosen.pretrained))
    engine = start_training(TrainConfig(batch_size=chosen.batch_size), inputs, world).engine
    set_training_mode(engine.network)
    return engine


def _batch(chosen: argparse.Namespace, world: World) -> Batch:
    size, count = chosen.image_size, chosen.batch_size
    pixels = torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    targets = torch.randint(0, 4, (count,))
    return Batch(pixels.to(world.device), targets.to(world.device), np.arange(count), count, {})


def _replayed(
    engine: Engine, eager: TrainStep, batch: Batch, is_long: bool
) -> Callable[[], object]:
    """Return a step that has been captured; compiled first if the training is long."""
    plan, sums = engine.plan, Sums(engine.world.device)
    trials = TrialPasses(
        engine.model,
        engine.network,
        engine.optimizer,
        plan.inputs.framing,
        plan.precision,
        engine.world,
    )
    step = CudaGraphStep(eager, trials.compile)
    step.remaining_steps = 1 << 40 if is_long else 0

    def call() -> object:
        return step(batch, 0.001, sums)

    for _ in range(2 * (WARMUP_STEPS + TIMED_STEPS)):
        call()
        torch.cuda.synchronize()
    return call


def _rate(step: Callable[[], object], batch_size: int) -> Mapping[str, float]:
    for _ in range(WARMUP_STEPS):
        step()
    torch.cuda.synchronize()
    started_at, count = time.perf_counter(), 0
    while time.perf_counter() - started_at < MEASURED_S:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        count += 10
    return {"images/s": count * batch_size / (time.perf_counter() - started_at)}


if __name__ == "__main__":
    main()
