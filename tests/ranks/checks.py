"""The measurements that every process of a group makes; the tests compare the records of all
processes.

Starting a process takes seconds (it loads PyTorch), so each group is started once and makes all of
them. Every training image is a uniform grey of its own, so the grey that a network sees identifies
the image.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.optim import SGD

from tests.trainings import PLAIN, start_training, uncached
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.dataset import EpochPlan, inference_dataset
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.epoch_plan import PlannedBatch, plan_training
from train_pytorch_model.data.loader import Loader
from train_pytorch_model.data.open_caches import NO_CACHES
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.label_kinds import SetsPerImage
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.inputs.opening import TrainingInputs, open_training_inputs
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.networks.batch_norms import running_statistics
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.identical_files import find_identical
from train_pytorch_model.stories.train import train
from train_pytorch_model.training.batches import Batches, open_batches
from train_pytorch_model.training.flat_gradients import FlatGradients
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.precision import Precision
from train_pytorch_model.training.saver import NotFiniteError, Saver
from train_pytorch_model.training.step import TrainStep

CATEGORIES = 7  # more than five, so that top-5 accuracy is not always 1
NUM_TRAINING, NUM_VALIDATION = 26, 11
BATCH_SIZE = (
    2  # 26 = 5 x 4 + 2 x 3 = 6 + 4 x 5: batch norm needs two, so 3 or 5 images leave a process none
)
NUM_DECODED = (
    10  # of the training images, where epochs are compared as a whole; 10 = 2 x 4 + 2 = 6 + 4
)
LEARNING_RATE = 0.01
SEED = 3


def grey_of(index: int) -> int:
    """The grey value of a training image."""
    return 10 + 8 * index


def paint_data_sets(root: Path) -> None:
    """Paint training images of one grey each, and validation images of noise."""
    for category in range(CATEGORIES):
        for name in ("training", "validation"):
            (root / name / str(category)).mkdir(parents=True)
    for index in range(NUM_TRAINING):
        image = Image.new("RGB", (32, 32), (grey_of(index),) * 3)
        image.save(root / "training" / str(index % CATEGORIES) / f"{index}.png")
    for index in range(NUM_VALIDATION):
        noise = np.random.default_rng(index).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(root / "validation" / str(index % CATEGORIES) / f"{index}.png")


def open_inputs(root: Path, untrained_model: Path) -> TrainingInputs:
    """Open the inputs that all groups train on."""
    return open_training_inputs(untrained_model, root / "training", root / "validation").with_flips(
        True
    )


def measure(inputs: TrainingInputs, world: World) -> dict[str, Any]:
    """Make all measurements of one process; return them as plain values."""
    return {
        "rank": world.rank,
        "place": [world.local_rank, world.local_size, world.threads.count],
        "validated": {str(size): validate(inputs, world, size) for size in (2, 4, 16)},
        "validated_lists": validate(with_lists(inputs), world, 4),
        "trained": train_an_epoch(inputs, world),
        "fine_tuning": start_fine_tuning(inputs, world),
        "gradients": {str(count): compare_gradients(inputs, world, count) for count in (11, 1)},
        "not_finite": diverge(inputs, world),
        "decoding": {
            name: decode_two_epochs(inputs, world, name == "once") for name in ("each time", "once")
        },
        "features": {
            name: train_frozen(inputs, world, name == "once") for name in ("each time", "once")
        },
    }


def validate(inputs: TrainingInputs, world: World, batch_size: int) -> dict[str, float]:
    """Validate the initial weights; a batch size of 16 makes fewer batches than processes."""
    training = start_training(TrainConfig(batch_size=batch_size, random_seed=SEED), inputs, world)
    with uncached(training.engine) as batches:
        metrics = training.validate(batches)
    return {
        "loss": metrics.loss,
        "top1": metrics.top1,
        "top5": metrics.top5,
        "images": metrics.images,
        **training.state.validated_further,
    }


def with_lists(inputs: TrainingInputs) -> TrainingInputs:
    """The same images with lists of categories: their own, and the first one of every third."""
    return replace(
        inputs, training=_with_lists(inputs.training), validation=_with_lists(inputs.validation)
    )


def _with_lists(images: ImageDirectory) -> ImageDirectory:
    marks = images.marks(np.arange(len(images)))
    marks[::3, 0] = True
    sets, numbers = np.unique(marks, axis=0, return_inverse=True)
    return replace(
        images, labels=SetsPerImage(sets), class_indices=numbers.ravel().astype(np.int32)
    )


def train_an_epoch(inputs: TrainingInputs, world: World) -> dict[str, Any]:
    """Train an epoch: the images the network saw, the initial learning rate, final weights and
    statistics.
    """
    config = TrainConfig(
        batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE, random_seed=SEED, print_frequency=1
    )
    training = start_training(config, inputs, world)
    engine, state = training.engine, training.state
    steps: list[list[int]] = []
    engine.network.register_forward_pre_hook(lambda _, images: steps.append(_greys(images[0])))
    with uncached(training.engine) as batches:
        first = training.train(Batches(training.engine, batches._loader, NO_CACHES, max_steps=1))
        state.validated = first.metrics
        state.close_epoch(engine.network)
        steps.clear()
        report = training.train(batches)
    own = running_statistics(engine.network)
    mean = world.sum(own) / world.size
    engine.average_statistics()
    averaged = running_statistics(engine.network)
    parameters = torch.cat([value.detach().flatten() for value in engine.network.parameters()])
    return {
        "steps": steps,
        "images": report.metrics.images,
        "first_rate": first.lr,
        "parameters": _digest(parameters),
        "own_statistics": _digest(own),
        "averaged_statistics": _digest(averaged),
        "distance_from_mean": float((averaged - mean).abs().max()),
        "is_finite": bool(parameters.isfinite().all() and averaged.isfinite().all()),
    }


def start_fine_tuning(inputs: TrainingInputs, world: World) -> dict[str, Any]:
    """What rank 0 derives from images for all: batch norm statistics and learning rate factors."""
    pretrained = replace(inputs, model=replace(inputs.model, is_pretrained=True))
    config = TrainConfig(random_seed=SEED)
    random, fine_tuned = (
        start_training(config, each, world).engine for each in (inputs, pretrained)
    )
    return {
        "given": _digest(running_statistics(random.network)),
        "statistics": _digest(running_statistics(fine_tuned.network)),
        "lr_factors": [group["lr_factor"] for group in fine_tuned.optimizer.param_groups],
    }


def decode_two_epochs(inputs: TrainingInputs, world: World, is_cached: bool) -> dict[str, Any]:
    """Train and validate two epochs: the network's inputs, its final state, how many images were
    decoded.
    """
    config = TrainConfig(epochs=2, batch_size=BATCH_SIZE, random_seed=SEED)
    training = start_training(config, first_images(inputs, NUM_DECODED), world)
    network = training.engine.network
    seen: list[str] = []
    network.register_forward_pre_hook(lambda _, images: seen.append(_digest(images[0])))
    decoded: list[object] = []
    decode = Decoders.decode

    def count(self: Decoders, file: Path, short_side: int, colours: Colours) -> Any:
        decoded.append(file)
        return decode(self, file, short_side, colours)

    with (
        patch.object(Decoders, "decode", count),
        open_batches(training.engine, None) if is_cached else uncached(training.engine) as batches,
    ):
        for _ in range(2):
            training.train_and_validate(batches)
    parameters = torch.cat([value.detach().flatten() for value in network.parameters()])
    return {
        "seen": seen,
        "parameters": _digest(parameters),
        "statistics": _digest(running_statistics(network)),
        "decoded": len(decoded),
    }


def train_frozen(inputs: TrainingInputs, world: World, is_kept: bool) -> dict[str, Any]:
    """Train the last layer for two epochs: its weights, and the images that the backbone has
    computed.
    """
    recipe = replace(
        inputs.recipe, freeze_backbone=True, augmentation="none", horizontal_flip=False
    )
    config = TrainConfig(epochs=2, batch_size=BATCH_SIZE, random_seed=SEED)
    training = start_training(config, replace(inputs, recipe=recipe), world)
    computed: list[str] = []

    def record(_: object, given: tuple[Tensor]) -> None:
        computed.extend(
            _digest(image) for image in given[0] if (image > -1).any()
        )  # others fill up

    training.engine.network.register_forward_pre_hook(record)
    engine = training.engine
    with open_batches(engine, None) if is_kept else uncached(engine) as batches:
        for _ in range(2):
            training.train_and_validate(batches)
    head = training.engine.network.get_submodule(training.plan.head)
    weights = torch.cat([value.detach().flatten() for value in head.parameters()])
    return {"computed": computed, "head": weights.tolist()}


def _own_and_all(num_images: int, world: World) -> tuple[list[PlannedBatch], list[PlannedBatch]]:
    """This process's batches of an epoch, and those that all processes have together."""
    plans = [
        plan_training(num_images, BATCH_SIZE, 1, SEED, 1, rank, world.size)
        for rank in range(world.size)
    ]
    unions = [
        PlannedBatch(np.concatenate([share.indices for share in shares]), shares[0].global_count)
        for shares in zip(*plans, strict=True)
    ]
    return list(plans[world.rank]), unions


def compare_gradients(
    inputs: TrainingInputs, world: World, num_images: int
) -> list[dict[str, Any]]:
    """Compare each step's gradients with plain PyTorch's, in one process on the images of all
    processes.

    Averaged by DDP, and in one tensor, as between the CUDA graphs of several GPUs. In evaluation
    mode, where no image's result depends on its batch, and with learning rate 0, so that all start
    from one state.
    """
    planned, unions = _own_and_all(num_images, world)
    torch.manual_seed(SEED)
    network = build_model(inputs.model, inputs.categories).eval()
    model = nn.Sequential(Normalize(inputs.spec.mean, inputs.spec.std), network)
    optimizer = SGD(network.parameters(), lr=0.0)
    found: list[Tensor] = []
    optimizer.register_step_pre_hook(lambda *_: found.append(_gradient(network)))
    precision = Precision(torch.float32, "of this test")
    scaler = precision.scaler(world.device)
    with torch.no_grad():  # such as the last bits of another processor
        for weights in network.parameters():
            weights.add_(1e-3 * world.rank)
    if world.size > 1:
        world.broadcast_(model)
    flat = TrainStep(
        model=model,
        optimizer=optimizer,
        scaler=scaler,
        task=PLAIN,
        precision=precision,
        world=world,
        gradients=FlatGradients(network.parameters()) if world.size > 1 else None,
    )
    with Loader(world.cores) as loader:

        def batches(plan: list[PlannedBatch]) -> list[Batch]:
            dataset = inference_dataset(inputs.training, inputs.framing)
            return list(loader.batches(EpochPlan("", plan, dataset, inputs.framing)))

        own, whole = batches(planned), batches(unions)
    for batch in own:
        flat(batch, 0.0, Sums(world.device))
    replicated = replace(flat, model=world.replicate(model), gradients=None)
    for batch in own:
        replicated(batch, 0.0, Sums(world.device))

    comparisons = []
    at_once, in_buckets = found[: len(own)], found[len(own) :]
    for one, other, batch, union in zip(at_once, in_buckets, own, whole, strict=True):
        network.zero_grad()
        F.cross_entropy(model(union.images), union.targets).backward()  # type: ignore[no-untyped-call]
        expected = _gradient(network)
        comparisons.append(
            {
                "own_images": len(batch.targets),
                "union_images": len(union.targets),
                "largest": float(expected.abs().max()),
                "difference": max(float((each - expected).abs().max()) for each in (one, other)),
            }
        )
    return comparisons


def diverge(inputs: TrainingInputs, world: World) -> dict[str, Any]:
    """Train at a learning rate at which weights overflow; the error that ends it, and its step."""
    config = TrainConfig(
        batch_size=BATCH_SIZE, learning_rate=1e30, random_seed=SEED, print_frequency=1
    )
    training = start_training(config, inputs, world)
    with (
        uncached(training.engine) as batches,
        Saver(
            Path("nowhere"), 1e9, training.engine, training.state, StopRequests(), print
        ) as saver,
    ):
        try:
            training.train(batches, saver.after_step)
        except NotFiniteError as error:
            return {"message": str(error), "step": training.state.progress.steps_done}
    return {}


def train_and_publish(inputs: TrainingInputs, world: World, output: Path) -> None:
    """Run a complete training of one epoch on a few images."""
    config = TrainConfig(epochs=1, batch_size=BATCH_SIZE, random_seed=SEED)
    train(config, first_images(inputs, 8), output, world)


def first_images(inputs: TrainingInputs, number: int) -> TrainingInputs:
    """The inputs with fewer training images."""
    training = inputs.training.select(np.arange(number))
    return replace(inputs, training=training, identical=find_identical(training, inputs.validation))


def _greys(images: Tensor) -> list[int]:
    """The grey of each normalized image (B, 3, H, W), after checking that each is uniform."""
    pixels = ((images.detach() * 0.5 + 0.5) * 255).round()
    assert bool((pixels == pixels[:, :1, :1, :1]).all()), "an image is not of one grey"
    return [int(value) for value in pixels[:, 0, 0, 0].tolist()]


def _gradient(network: nn.Module) -> Tensor:
    gradients = [parameter.grad for parameter in network.parameters()]
    return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None]).clone()


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.contiguous().numpy().tobytes()).hexdigest()
