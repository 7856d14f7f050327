"""The engine of a run: network, optimizer and step, built once from a plan, after trial passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cutmix import with_cutmix
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.networks import batch_norms, build, frozen_backbone, initialize
from train_pytorch_model.networks.cpu_convolutions import adapt_to_cpu
from train_pytorch_model.networks.small_maps import unmet_weights_of
from train_pytorch_model.training.cuda_graph_step import CudaGraphStep, can_be_captured
from train_pytorch_model.training.fine_tuning import (
    LearningRateFactors,
    prepare_fine_tuning,
)
from train_pytorch_model.training.flat_gradients import FlatGradients
from train_pytorch_model.training.optimizer import make_optimizer
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.step import Step, TrainStep
from train_pytorch_model.training.trial_passes import TrialPasses

# Images of a size that are validated at once, as a multiple of those trained: without gradients,
# each needs a tenth of the memory.
VALIDATED_PER_TRAINED = 4
MAX_VALIDATED_AT_ONCE = 512


@dataclass(frozen=True)
class Engine:
    """What computes, and what only the built network can tell; made once, in `start_engine`.

    Its tensors change as it trains; nothing else does.
    """

    plan: Plan
    network: nn.Module  # normalized float32 images (B, 3, H, W) → logits (B, C)
    # uint8 images (B, 3, H, W) → logits (B, C); an `OnFrozenBackbone` if features are cached
    model: nn.Module
    optimizer: Optimizer
    scaler: GradScaler
    take_step: Step
    lr_factors: LearningRateFactors
    micro_batch: int | None  # images that fit into memory; None if a whole batch does

    @property
    def world(self) -> World:
        return self.plan.world

    @property
    def trained_at_once(self) -> int:
        """Return how many images a process computes at once in training."""
        return self.micro_batch or self.plan.config.batch_size

    @property
    def validated_at_once(self) -> int:
        """Return how many images a process computes at once in validation."""
        trained = self.trained_at_once
        if self.world.device.type != "cuda":
            return trained
        inputs = self.plan.inputs
        of_training_size = max(trained, min(VALIDATED_PER_TRAINED * trained, MAX_VALIDATED_AT_ONCE))
        num_pixels = of_training_size * inputs.training_framing.num_pixels
        return max(1, num_pixels // inputs.framing.num_pixels)

    @property
    def features_at_once(self) -> int:
        """Return how many images' features are computed at once, the same number in all epochs."""
        plan = self.plan
        largest_step = -(-len(plan.inputs.training) // (plan.steps_per_epoch * plan.world.size))
        return min(self.trained_at_once, largest_step)

    def bit_context(self) -> dict[str, str]:
        """Return what a result depends on bit for bit, besides inputs and parameters."""
        device = self.world.device
        is_repeated_on_gpu = self.plan.inputs.recipe.deterministic and device.type == "cuda"
        gpu = {"GPU": torch.cuda.get_device_name(device)} if is_repeated_on_gpu else {}
        return {
            "processes": str(self.world.size),
            "device": device.type,
            **gpu,
            "precision": str(self.plan.precision.dtype),
            "threads": str(torch.get_num_threads()),
            "images at once": str(self.trained_at_once),
            "torch": torch.__version__,
        }

    def begin_training(self, epoch: int, steps_done: int) -> None:
        """Prepare for the steps of an epoch, counted from 1, of which some may be done."""
        batch_norms.set_training_mode(self.network)
        if isinstance(self.take_step, CudaGraphStep):
            self.take_step.remaining_steps = self.plan.remaining_steps(epoch, steps_done)

    def end_training(self) -> None:
        """Let the weights be those after the steps of an epoch."""
        for unmet in unmet_weights_of(self.network).values():
            unmet.apply()

    def randomize(self, batch: Batch, epoch: int, step: int) -> Batch:
        """Seed the randomness of a step, dropout and CutMix, and apply CutMix.

        The seed depends on (seed, epoch, step, rank), so no generator's state has to be saved.
        """
        inputs = self.plan.inputs
        seed = derive_seed(self.plan.config.random_seed, "noise", epoch, step, self.world.rank)
        _seed_generator(self.world.device, seed)
        if not inputs.recipe.cutmix:
            return batch
        targets = self.plan.task.as_probabilities(batch.targets)
        return with_cutmix(batch, targets, inputs.recipe.cutmix, seed)

    def features(self, images: Tensor) -> Tensor:
        """Return the features (B, D), in the plan's precision, of uint8 images (B, 3, H, W).

        There are at most `features_at_once` images; black ones make up for fewer, because a batch
        of another size may be rounded differently.
        """
        assert isinstance(self.model, frozen_backbone.OnFrozenBackbone)
        num_missing = self.features_at_once - len(images)
        padded = F.pad(images, (0, 0, 0, 0, 0, 0, 0, num_missing))
        with self.plan.precision.autocast(self.world.device):
            features = self.model.features(padded)
        return features[: len(images)].to(self.plan.precision.dtype)

    def is_finite(self) -> bool:
        """Return whether all weights and statistics are finite. Waits for the device."""
        values = [
            value for value in self.network.state_dict().values() if value.is_floating_point()
        ]
        norms = torch._foreach_norm(values, ord=float("inf"))
        return bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())

    def average_statistics(self) -> None:
        """Average the running statistics over all processes, which have seen different images."""
        local = batch_norms.running_statistics(self.network)
        if self.world.size > 1 and len(local) > 0:
            means = self.world.sum(local) / self.world.size
            batch_norms.set_running_statistics(self.network, means)


def _seed_generator(device: torch.device, seed: int) -> None:
    """Seed the generator of a device, and no other.

    Next to a loader's threads `torch.manual_seed` takes 1.7 ms, in which a fast GPU finishes a
    step.
    """
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
    elif device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.get_device_module(device).manual_seed(seed)


def start_engine(plan: Plan, max_micro_batch: int | None = None) -> Engine:
    """Build the engine. Collective: all processes call it, and communicate in it.

    On the main process, fine-tuning decodes a few training images. A GPU tries out what fits into
    its memory, and no more than `max_micro_batch` images if an earlier start of the run ran out of
    memory. Raises `InvalidModelDirectoryError`, `ModuleOutOfMemoryError`.
    """
    config = plan.config
    inputs = plan.inputs
    world = plan.world
    network = _make_network(plan)
    head = network.get_submodule(plan.head)

    # The model, on the device. Fine-tuning computes with it before the optimizer exists, since the
    # optimizer needs the learning rate factors.
    normalize = Normalize(inputs.spec.mean, inputs.spec.std)
    model: nn.Module = nn.Sequential(normalize, network).to(world.device)
    model = model.to(memory_format=torch.channels_last)
    is_whitened = inputs.recipe.freeze_backbone and plan.task.whitens_features
    lr_factors, whitening = prepare_fine_tuning(
        model, inputs, config, world, plan.schedule.peak_lr, plan.optimizer.name, is_whitened
    )
    if plan.cache.views:
        model = frozen_backbone.OnFrozenBackbone(model, head)
    factors = lr_factors.by_parameter(network, head)
    scaler = plan.precision.scaler(world.device)
    # DDP averages, and a scaler unscales, the gradients of all weights.
    delays_unmet = world.size == 1 and not scaler.is_enabled()
    optimizer = make_optimizer(network, factors, plan.optimizer.name, delays_unmet)
    if whitening is not None:
        assert isinstance(head, nn.Linear)
        whitening.to(world.device).attach(optimizer, head)

    # The step. All processes begin with rank 0's weights; trials leave the network as it was.
    framing = inputs.training_framing
    trials = TrialPasses(model, network, optimizer, framing, plan.precision, world)
    micro_batch = trials.find_micro_batch(config.batch_size, max_micro_batch, plan.min_local_batch)
    is_replayed = world.device.type == "cuda" and micro_batch is None and not plan.cache.views
    trained: nn.Module = model
    gradients: FlatGradients | None = None
    if world.size > 1:
        # Whether averaging is fast is measured, and the way of averaging decides about bits.
        is_measured = is_replayed and not inputs.recipe.deterministic
        trained, gradients = _replicate(plan, model, trials, is_measured)
        is_replayed = gradients is not None
    step = TrainStep(
        model=trained,
        optimizer=optimizer,
        scaler=scaler,
        task=plan.task,
        precision=plan.precision,
        world=world,
        micro_batch=micro_batch,
        min_local_batch=plan.min_local_batch,
        gradients=gradients,
    )
    take_step: Step = step
    if is_replayed:
        compile_for = uncompiled if inputs.recipe.deterministic else trials.compile
        take_step = CudaGraphStep(step, compile_for)
    return Engine(plan, network, model, optimizer, scaler, take_step, lr_factors, micro_batch)


def uncompiled(_: Sequence[int]) -> None:
    """Compile no network: whether that pays is measured, and compiled ones round otherwise."""


def _make_network(plan: Plan) -> nn.Module:
    """Return the network on the CPU, with the weights from which it starts."""
    config = plan.config
    inputs = plan.inputs
    # The seed comes first: a new head draws from the generator. Freezing comes before what changes
    # weights or statistics, which leave frozen layers alone; layers are replaced for the CPU last,
    # with their weights.
    torch.manual_seed(derive_seed(config.random_seed, "weights"))
    network = build.build_model(inputs.model, inputs.categories)
    if inputs.recipe.freeze_backbone:
        frozen_backbone.freeze_backbone(network, inputs.model.architecture)
    for parameter in islice(network.parameters(), plan.num_frozen):
        parameter.requires_grad_(False)
    batch_norms.raise_momentum(network, plan.steps_per_epoch)
    if not (inputs.model.is_pretrained or inputs.model.is_trained or inputs.recipe.freeze_backbone):
        initialize.initialize_from_scratch(
            network,
            inputs.model.architecture,
            config.epochs,
            images_per_category=len(inputs.training) / len(inputs.categories),
            peak_lr=plan.schedule.peak_lr if plan.optimizer.name == "sgd" else None,
            batch_size=plan.global_batch_size,
        )
    bias = plan.task.initial_bias()
    if bias is not None:
        initialize.set_new_bias(
            network.get_submodule(plan.head), bias, inputs.model.categories, inputs.categories
        )
    if plan.world.device.type == "cpu":
        adapt_to_cpu(network)
    return network


def _replicate(
    plan: Plan, model: nn.Module, trials: TrialPasses, may_be_replayed: bool
) -> tuple[nn.Module, FlatGradients | None]:
    """Return the model for training in several processes, and where its gradients are averaged.

    If steps can be replayed and averaging is fast, that is between two CUDA graphs; otherwise
    it is in DDP. Collective.
    """
    world = plan.world
    if may_be_replayed and can_be_captured(model):
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        gradients = FlatGradients(trainable)
        if trials.is_averaging_fast(gradients, plan.config.batch_size):
            world.broadcast_(model)
            return model, gradients
        del gradients  # as large as the network
    replicated = world.replicate(model)
    trials.settle_buckets(replicated, plan.min_local_batch)
    return replicated, None
