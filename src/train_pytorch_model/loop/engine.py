"""The engine of a run: network, optimizer and step, built once from a plan, after trial passes."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_pytorch_model.data.loader import Batch, with_cutmix
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.loop.fine_tuning import prepare_fine_tuning
from train_pytorch_model.loop.optimizer import Precision, make_loss, make_optimizer
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.loop.step import (
    CudaGraphStep,
    FlatGradients,
    Step,
    TrainStep,
    can_be_captured,
)
from train_pytorch_model.machine.console import logger, paragraph
from train_pytorch_model.networks import batch_norms, models
from train_pytorch_model.networks.shapes import adapt_to_cpu
from train_pytorch_model.words.errors import ModuleOutOfMemoryError
from train_pytorch_model.words.settings import derive_seed

MAX_AVERAGING = 0.1  # of the time of an eager pass; replaying and compiling save more


@dataclass(frozen=True)
class Engine:
    """What computes: built once, in `start_engine`. Its tensors change as it trains; nothing else
    does."""

    plan: Plan  # complete: with what only the built network can tell
    network: nn.Module  # normalized float32 images (B, 3, H, W) → logits (B, C)
    model: (
        nn.Module
    )  # uint8 images (B, 3, H, W) → logits (B, C); an `OnFrozenBackbone` to keep features
    optimizer: Optimizer
    scaler: GradScaler
    take_step: Step

    @property
    def world(self) -> World:
        return self.plan.world

    def begin_training(self, epoch: int, steps_done: int) -> None:
        """Prepare for the steps of an epoch, counted from 1, of which some may be done."""
        batch_norms.set_training_mode(self.network)
        if isinstance(
            self.take_step, CudaGraphStep
        ):  # compiling has to pay in the steps that are left
            self.take_step.steps_left = self.plan.steps_left(epoch, steps_done)

    def randomize(self, batch: Batch, epoch: int, step: int) -> Batch:
        """Seed the randomness of a step, dropout and CutMix, by (seed, epoch, step, rank); apply
        CutMix.

        So no generator's state has to be saved. Next to a loader's threads `torch.manual_seed`
        takes 1.7 ms, in which a fast GPU finishes a step.
        """
        inputs, device = self.plan.inputs, self.world.device
        seed = derive_seed(self.plan.config.random_seed, "noise", epoch, step, self.world.rank)
        if device.type == "cuda":
            torch.cuda.default_generators[device.index].manual_seed(seed)
        elif device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.get_device_module(device).manual_seed(seed)
        cutmix = inputs.recipe.cutmix
        return with_cutmix(batch, len(inputs.categories), cutmix, seed) if cutmix else batch

    def features(self, images: Tensor) -> Tensor:
        """Features (B, D), in the plan's precision, of up to `features_at_once` uint8 images (B, 3,
        H, W).
        """
        assert isinstance(self.model, models.OnFrozenBackbone)
        missing = self.plan.features_at_once - len(images)
        with self.plan.precision.autocast(self.world.device):
            features = self.model.features(F.pad(images, (0, 0) * 3 + (0, missing)))
        return features[: len(images)].to(self.plan.precision.dtype)

    def is_finite(self) -> bool:
        """Whether all weights and statistics are finite. Waits for the device."""
        values = [
            value for value in self.network.state_dict().values() if value.is_floating_point()
        ]
        norms = torch._foreach_norm(values, ord=float("inf"))
        return bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())

    def average_statistics(self) -> None:
        """Average the running statistics over all processes, each of which has seen other images."""
        local = batch_norms.running_statistics(self.network)
        if self.world.size > 1 and len(local) > 0:
            batch_norms.set_running_statistics(
                self.network, self.world.sum(local) / self.world.size
            )


def start_engine(plan: Plan, fitted: int | None = None) -> Engine:
    """Build the engine. Collective: all processes call it, and communicate in it.

    On the main process, fine-tuning decodes a few training images; a GPU tries out what fits into
    its memory, starting from `fitted` images if an earlier start of the run ran out of memory.
    Raises `InvalidModelDirectoryError`, `ModuleOutOfMemoryError`.
    """
    config, inputs, world = plan.config, plan.inputs, plan.world
    network = _make_network(plan)

    # The model, on the device. Fine-tuning computes with it before the optimizer exists, since the
    # optimizer needs the learning rate factors.
    normalize = Normalize(inputs.spec.mean, inputs.spec.std)
    model: nn.Module = nn.Sequential(normalize, network).to(world.device)
    model = model.to(memory_format=torch.channels_last)
    factors = prepare_fine_tuning(model, inputs, config, world, plan.optimizer.name)
    if plan.cache.views:
        model = models.OnFrozenBackbone(model, network.get_submodule(plan.head))
    optimizer = make_optimizer(network, factors, plan.optimizer.name)
    scaler = plan.precision.scaler(world.device)

    # The step. All processes begin with rank 0's weights; trials leave the network as it was.
    trials = Trials(model, network, optimizer, inputs.training_framing, plan.precision, world)
    micro_batch = trials.fitting_micro_batch(config.batch_size, fitted, plan.min_local_batch)
    is_replayed = world.device.type == "cuda" and micro_batch is None and not plan.cache.views
    trained: nn.Module = model
    gradients: FlatGradients | None = None
    if world.size > 1:
        if is_replayed and can_be_captured(model):
            gradients = FlatGradients(each for each in network.parameters() if each.requires_grad)
        is_replayed = gradients is not None and trials.average_soon(gradients, config.batch_size)
        if is_replayed:
            world.share_(model)
        else:
            trained, gradients = world.replicate(model), None
            trials.settle_buckets(trained, plan.min_local_batch)
    step = TrainStep(
        model=trained,
        optimizer=optimizer,
        scaler=scaler,
        loss_sum=make_loss(inputs, world),
        precision=plan.precision,
        world=world,
        micro_batch=micro_batch,
        min_local_batch=plan.min_local_batch,
        gradients=gradients,
    )
    take_step: Step = CudaGraphStep(step, trials.compiled) if is_replayed else step
    head = next(network.get_submodule(plan.head).parameters())
    body = next(islice(network.parameters(), plan.num_kept, None))
    plan = replace(
        plan,
        head_lr_factor=factors.get(head, 1.0),
        body_lr_factor=factors.get(body, 1.0) if body.requires_grad else 1.0,
        micro_batch=micro_batch,
    )
    return Engine(plan, network, model, optimizer, scaler, take_step)


def _make_network(plan: Plan) -> nn.Module:
    """Return the network on the CPU, with the weights from which it starts."""
    config, inputs = plan.config, plan.inputs
    # The seed comes first: a new head draws from the generator. Freezing comes before what changes
    # weights or statistics, which leave frozen layers alone; layers are replaced for the CPU last,
    # with their weights.
    torch.manual_seed(derive_seed(config.random_seed, "weights"))
    network = models.build_model(inputs.model, inputs.categories)
    if inputs.recipe.freeze_backbone:
        models.freeze_backbone(network, inputs.model.architecture)
    for parameter in islice(network.parameters(), plan.num_kept):
        parameter.requires_grad_(False)
    batch_norms.raise_momentum(network, plan.steps_per_epoch)
    if not (inputs.model.is_pretrained or inputs.model.is_trained or inputs.recipe.freeze_backbone):
        models.initialize_from_scratch(
            network,
            inputs.model.architecture,
            config.epochs,
            images_per_category=len(inputs.training) / len(inputs.categories),
            peak_lr=plan.schedule.peak_lr if plan.optimizer.name == "sgd" else None,
            batch_size=plan.global_batch_size,
        )
    if plan.world.device.type == "cpu":
        adapt_to_cpu(network, inputs.training_framing.height, inputs.training_framing.width)
    return network


@dataclass
class Trials:
    """Trial passes of a model, on black images of the size in `framing`, before the first training
    step."""

    model: nn.Module
    network: nn.Module  # the part of `model` that the `optimizer` trains
    optimizer: Optimizer
    framing: Framing
    precision: Precision
    world: World

    def fitting_micro_batch(
        self, batch_size: int, at_most: int | None, min_local_batch: int
    ) -> int | None:
        """Images of a batch that every process's memory holds; None: all.

        Raises `ModuleOutOfMemoryError`.
        """
        largest = max(min_local_batch, min(batch_size, at_most or batch_size))
        if self.world.device.type == "cuda" or at_most:
            with self._restoring():
                trial = partial(self._pass, self.model)
                largest = largest_that_fits(trial, largest, min_local_batch, self.world)
        if largest >= batch_size:
            return None
        parts = (
            f"a step of {batch_size} accumulates the gradients of {math.ceil(batch_size / largest)}"
        )
        paragraph(f"{largest} images at once: {parts} micro-batches", "Memory")
        return largest

    def settle_buckets(self, replicated: nn.Module, num_images: int) -> None:
        """Run two backward passes of the model in DDP, which rebuilds its buckets after the first
        one.

        It sums in bucket order: without this, a resumed run's first step would have another order.
        """
        with self._restoring():
            for _ in range(2):
                self._pass(replicated, num_images)

    def average_soon(self, gradients: FlatGradients, num_images: int) -> bool:
        """Whether averaging gradients at once takes little: DDP does it while computing them.

        Collective.
        """
        device, world = self.world.device, self.world

        def seconds_of(call: Callable[[], None]) -> float:
            torch.cuda.synchronize(device)
            started_at = time.perf_counter()
            call()
            torch.cuda.synchronize(device)
            return time.perf_counter() - started_at

        with self._restoring():
            for _ in range(2):  # the first time, libraries choose algorithms and connect
                computed_s = seconds_of(lambda: self._pass(self.model, num_images))
                world.average_(gradients.values)  # all processes have arrived
                averaged_s = seconds_of(lambda: world.average_(gradients.values))
        computed_s, averaged_s = world.max(
            torch.tensor([computed_s, averaged_s], device=device)
        ).tolist()
        is_soon = bool(averaged_s <= MAX_AVERAGING * computed_s)
        how = (
            "at once, between CUDA graphs" if is_soon else "while they are computed, by eager steps"
        )
        took = f"all take {1e3 * averaged_s:.1f} ms, computing {1e3 * computed_s:.1f} ms"
        paragraph(f"{how}: {took}", "Averaging")
        return is_soon

    def compiled(self, shape: Sequence[int]) -> nn.Module | None:
        """The model, compiled for steps on images (B, 3, H, W) of a shape; None if that fails."""
        paragraph(
            "the network, which takes a minute or two and saves a quarter of each step", "Compiling"
        )
        model = cast(nn.Module, torch.compile(self.model, dynamic=False))
        # Hide warnings meant for the network's authors, and keep the RNG state for the next step.
        rng_state_kept = torch.random.fork_rng([self.world.device.index])
        try:
            with self._restoring(), warnings.catch_warnings(action="ignore"), rng_state_kept:
                self._pass(model, shape[0], shape[2:])
        except Exception as error:  # no compiler on this machine, or a network it cannot compile
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0][:160]
            logger.warning(f"The network cannot be compiled ({reason}). It trains uncompiled.")
            return None
        return model

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """Restore the weights and statistics at the end of a `with` in which the network trains."""
        before = {name: value.clone() for name, value in self.network.state_dict().items()}
        batch_norms.set_training_mode(self.network)
        try:
            yield
        finally:
            self.network.load_state_dict(before)
            self.optimizer.zero_grad(set_to_none=True)

    def _pass(self, model: nn.Module, num_images: int, size: Sequence[int] = ()) -> None:
        """Forward and backward pass on images of a size (H, W), by default the largest."""
        shape = (num_images, 3, *(size or (self.framing.height, self.framing.width)))
        images = torch.zeros(shape, dtype=torch.uint8, device=self.world.device)
        with self.precision.autocast(self.world.device):
            logits = model(images.contiguous(memory_format=torch.channels_last))
        logits.float().sum().backward()
        self.optimizer.zero_grad(set_to_none=True)


def largest_that_fits(trial: Callable[[int], None], largest: int, least: int, world: World) -> int:
    """`largest` images, halved until they fit, down to `least`; the same on all processes.

    `trial` computes that many images in this process alone, without communication: a process that
    runs out of memory would leave the others waiting. Raises `ModuleOutOfMemoryError`.
    """
    images = largest
    while True:
        try:
            trial(images)
            break
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if images <= least:
                raise nothing_fits(images) from error
        torch.cuda.empty_cache()  # only now: the error kept the tensors alive
        images = max(least, images // 2)
    # The minimum over all processes, as the maximum of the negatives.
    return -int(world.max(torch.tensor([-images], dtype=torch.int64, device=world.device)).item())


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory has run out, on a GPU or on the CPU, whose allocator raises a plain
    `RuntimeError`.
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(
        error
    )


def nothing_fits(least: int) -> ModuleOutOfMemoryError:
    fit = f"{least} images fit" if least > 1 else "one image fits"
    what = f"not even {fit}. Lower the recipe's image_size and training_size, or take another architecture."
    return ModuleOutOfMemoryError(what, images_at_once=least)
