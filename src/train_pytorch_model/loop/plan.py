"""The plan of a run: everything that is decided before the first step, with the reason for each
decision.

It is printed, logged to MLflow and shown in the report; nobody else remembers a decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from train_pytorch_model.data.cache import CachePlan, Views, memory_text, plan_cache
from train_pytorch_model.data.loader import num_readers, num_training_steps
from train_pytorch_model.data.preparation import for_inference, for_training
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.architectures import head_of
from train_pytorch_model.image_classifier.decoding import MAX_WHITE
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.bad_images import left_out
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.loop import fine_tuning
from train_pytorch_model.loop import optimizer as optimizers
from train_pytorch_model.networks import shapes
from train_pytorch_model.networks.batch_norms import batch_norms
from train_pytorch_model.networks.models import build_untrained, freeze_backbone
from train_pytorch_model.words import errors
from train_pytorch_model.words.errors import counted, parameter
from train_pytorch_model.words.settings import TrainConfig

VALIDATED_AT_ONCE = (
    4  # times as many images of a size as in training: each needs a tenth of the memory
)
MAX_VALIDATED_AT_ONCE = 512


@dataclass(frozen=True)
class Plan:
    """What a run will do. The last three fields are what only the built network can tell
    (`start_engine`)."""

    config: TrainConfig
    inputs: TrainingInputs
    world: World
    fingerprint: Mapping[str, str]
    head: str  # the path of the last layer within the network
    framings: tuple[Framing, ...]  # framing of the training images, by epoch
    min_local_batch: int  # the fewest images of a step that batch norm can work on
    keeps_statistics: bool  # whether batch norms are fine-tuned with frozen, pretrained statistics
    num_kept: (
        int  # how many first parameters fine-tuning leaves as they are; 0 for a frozen backbone
    )
    steps_per_epoch: int
    optimizer: optimizers.OptimizerChoice
    schedule: optimizers.PolynomialSchedule
    precision: optimizers.Precision
    cache: CachePlan
    head_lr_factor: float = 1.0  # learning rate of the last layer, as a multiple of the schedule's
    body_lr_factor: float = 1.0  # learning rate of all other layers likewise; 1 if they are frozen
    micro_batch: int | None = (
        None  # images that fit into memory at once; None if a whole batch does
    )

    def learning_rate(self, epoch: int, step: int, rollback_factor: float) -> float:
        """The rate of a step, from 0, of an epoch, from 1: the schedule's times the rollback
        factor.
        """
        return self.schedule((epoch - 1) * self.steps_per_epoch + step) * rollback_factor

    @property
    def global_batch_size(self) -> int:
        return self.config.batch_size * self.world.size

    @property
    def trained_at_once(self) -> int:
        """How many images a process computes at once in training."""
        return self.micro_batch or self.config.batch_size

    @property
    def validated_at_once(self) -> int:
        """How many images a process computes at once in validation."""
        trained = self.trained_at_once
        if self.world.device.type != "cuda":
            return trained
        most = max(trained, min(VALIDATED_AT_ONCE * trained, MAX_VALIDATED_AT_ONCE))
        return max(
            1, most * self.inputs.training_framing.num_pixels // self.inputs.framing.num_pixels
        )

    @property
    def features_at_once(self) -> int:
        """By how many images features that are kept are computed: the same number in every epoch."""
        largest_step = -(-len(self.inputs.training) // (self.steps_per_epoch * self.world.size))
        return min(self.trained_at_once, largest_step)

    def steps_left(self, epoch: int, steps_done: int) -> int:
        """Steps left on images of the current size, if all epochs are trained; `epoch` is the open
        one.
        """
        epochs = self.framings[epoch - 1 :].count(self.framings[epoch - 1])
        return epochs * self.steps_per_epoch - steps_done

    def bit_context(self) -> dict[str, str]:
        """What a result depends on bit for bit, besides inputs and parameters."""
        return {
            "processes": str(self.world.size),
            "device": self.world.device.type,
            "precision": str(self.precision.dtype),
            "threads": str(torch.get_num_threads()),
            "images at once": str(self.trained_at_once),
            "torch": torch.__version__,
        }


def make_plan(config: TrainConfig, inputs: TrainingInputs, world: World) -> Plan:
    """Decide everything that does not depend on the values of the weights.

    Raises `InvalidDatasetError`, `InvalidModelDirectoryError`, `ParameterError`.
    """
    recipe, architecture = inputs.recipe, inputs.model.architecture
    trained = (
        inputs.training,
        for_training(recipe, inputs.training_framing, inputs.training_framing),
    )
    validated = inputs.validation, for_inference(inputs.framing)
    framings = tuple(inputs.training_framings(config.epochs))
    # The least batch is a matter of shapes, for which a network without values is enough.
    with shapes.WithoutMemory():
        network = build_untrained(inputs.model, len(inputs.categories))
    if recipe.freeze_backbone:
        freeze_backbone(network, architecture)
    smallest = framings[0]
    least = shapes.min_local_batch(network, smallest.height, smallest.width)
    is_trained = inputs.model.is_pretrained or inputs.model.is_trained
    optimizer = optimizers.choose_optimizer(recipe, network, is_trained)
    is_fine_tuned = inputs.model.is_fine_tuned_for(inputs.categories)
    steps_per_epoch = _steps_per_epoch(config, inputs, smallest, least, world)
    precision = optimizers.choose_precision(recipe.precision, world.device)
    head, views = head_of(architecture, network), None
    if recipe.freeze_backbone and not _why_views_differ(inputs, framings):
        width = shapes.width_of_features(network, head, smallest.height, smallest.width)
        views = (
            Views(1 + recipe.horizontal_flip, width, precision.dtype.itemsize) if width else None
        )
    num_kept = 0
    if (
        is_fine_tuned
        and not recipe.freeze_backbone
        and config.epochs <= fine_tuning.FULL_RATE_EPOCHS
    ):
        share = fine_tuning.KEPT_SHARE
        num_kept = shapes.count_first_parameters(network, smallest.height, smallest.width, share)
    return Plan(
        config=config,
        inputs=inputs,
        world=world,
        fingerprint=inputs.fingerprint(config),
        head=head,
        framings=framings,
        min_local_batch=least,
        keeps_statistics=is_fine_tuned and any(batch_norms(network)) and not recipe.freeze_backbone,
        num_kept=num_kept,
        steps_per_epoch=steps_per_epoch,
        optimizer=optimizer,
        schedule=optimizers.PolynomialSchedule(
            peak_lr=config.learning_rate * world.size * optimizer.rate,
            warmup_steps=config.warmup_epochs * steps_per_epoch,
            total_steps=config.epochs * steps_per_epoch,
        ),
        precision=precision,
        cache=plan_cache(trained, validated, config.epochs, num_readers(world), views),
    )


def _steps_per_epoch(
    config: TrainConfig, inputs: TrainingInputs, framing: Framing, least: int, world: World
) -> int:
    """Steps of an epoch; each takes at least `least` images, the minimum at the size of `framing`."""
    architecture, size = inputs.model.architecture, f"{framing.height} x {framing.width} px"
    if config.batch_size < least:
        limit = errors.out_of_range(
            "Batch size", f"greater than {least - 1}", parameter("batch_size"), config.batch_size
        )
        raise errors.ParameterError(
            f"{limit} At {size} the batch norm of {architecture} needs {least} images a step."
        )
    steps = num_training_steps(len(inputs.training), config.batch_size, least, world.size)
    if steps == 0:
        what = f"it has {len(inputs.training)} image; {architecture} needs {least} at {size}."
        raise errors.InvalidDatasetError(inputs.training.title, what)
    return steps


def _why_views_differ(inputs: TrainingInputs, framings: Sequence[Framing]) -> str:
    """Why a frozen backbone sees more of an image than two views, as it is and mirrored; empty if
    not.
    """
    if inputs.recipe.augmentation != "none":
        return f"each {inputs.recipe.augmentation} differs"
    if inputs.recipe.cutmix:
        return "CutMix combines images"
    return "the size of training images changes" if len(set(framings)) > 1 else ""


def describe(plan: Plan) -> dict[str, str]:
    """The plan for people, title → text, with the reason for every derived number."""
    config, inputs, world, readers = plan.config, plan.inputs, plan.world, num_readers(plan.world)
    recipe, model, framing = inputs.recipe, inputs.model, inputs.framing
    kind = "trained " if model.is_trained else "pretrained " if model.is_pretrained else ""
    facts = {"Model": f"{kind}{model.architecture}, {len(inputs.categories)} categories"}
    if model.is_trained and model.is_fine_tuned_for(inputs.categories):
        facts["Model"] += (
            f", {len(set(inputs.categories) & set(model.categories))} of which it knows"
        )
    facts["Images"] = (
        f"{len(inputs.training):,} for training, {len(inputs.validation):,} for validation"
    )
    facts["Size"] = f"{framing.height} x {framing.width} px ({inputs.size_reason})"
    first, last = plan.framings[0], plan.framings[-1]
    if not first == last == framing:
        facts["Size"] += f", trained at {first.height} x {first.width}"
    if first != last:
        facts["Size"] += (
            f", from epoch {plan.framings.index(last) + 1} on at {last.height} x {last.width}"
        )
    facts["Augmenting"] = crop = recipe.augmentation
    if recipe.horizontal_flip:
        facts["Augmenting"] = "flip, no crop" if crop == "none" else f"{crop} and flip"
    elif inputs.flip_reason:
        facts["Augmenting"] += f", no flip ({inputs.flip_reason})"
    if recipe.cutmix:
        facts["Augmenting"] += f", CutMix in {recipe.cutmix:.0%} of the steps"
    if recipe.label_smoothing:
        facts["Smoothing"] = (
            f"label smoothing {recipe.label_smoothing:g}, in the training loss only"
        )
    if recipe.white_level != MAX_WHITE:
        reason = (
            "the recipe says so" if model.recipe.white_level else "the range that a sample uses"
        )
        facts["16 bits"] = f"0 to {recipe.white_level:,} are black to white ({reason})"
    processes = counted(world.size, "process", "processes")
    up_to = "up to " if len(inputs.training) % plan.global_batch_size else ""
    facts["Steps"] = (
        f"{plan.steps_per_epoch:,} per epoch, {plan.schedule.total_steps:,} in total:"
        f" {up_to}{plan.global_batch_size} images per step = batch size {config.batch_size} x"
        f" {processes}"
    )
    if plan.optimizer.name != "sgd" or recipe.optimizer != "auto":
        facts["Optimizer"] = str(plan.optimizer)
    facts["Peak LR"] = _learning_rates(plan)
    if plan.num_kept:
        facts["Fine-tuning"] = (
            f"the first {fine_tuning.KEPT_SHARE:.0%} of the computation stays as given"
        )
    if plan.keeps_statistics:
        facts["Batch norms"] = (
            f"use frozen pretrained statistics, moved {fine_tuning.STATISTICS_FRACTION:.0%} towards"
            " those"
            f" of {fine_tuning.num_sampled(inputs, config.batch_size)} training images"
        )
    threads = f"{counted(world.cores, 'thread', 'threads')} for decoding"
    decoding = f"{readers} processes for loading images" if readers else threads
    facts |= {"Precision": str(plan.precision), "Device": f"{world.device.type}, {decoding}"}
    if world.device.type == "cpu":
        facts["Threads"] = f"{world.threads.count}, {world.threads.reason}"
    facts["Decoding"] = plan.cache.summary
    if recipe.freeze_backbone:
        facts["Features"] = f"of the frozen backbone, {_features(plan)}"
    return facts


def _learning_rates(plan: Plan) -> str:
    """The peak, what the learning rate does after it, or before, and where it differs, as a phrase."""
    peak_lr, warmup_steps, config = plan.schedule.peak_lr, plan.schedule.warmup_steps, plan.config
    rate = f" x {plan.optimizer.rate:g} for AdamW" if plan.optimizer.rate != 1 else ""
    processes = counted(plan.world.size, "process", "processes")
    warmup = (
        f"{counted(warmup_steps, 'warmup step', 'warmup steps')}, then"
        if warmup_steps
        else "no warmup,"
    )
    text = f"{peak_lr:g} = learning rate {config.learning_rate:g} x {processes}{rate}, {warmup} polynomial decay"
    if plan.head_lr_factor != 1:
        text += f"; {plan.head_lr_factor * peak_lr:.2g} for the new last layer"
    if plan.body_lr_factor != 1:
        text += f"; {plan.body_lr_factor * peak_lr:.2g} for the backbone, the most it tolerates in"
        text += f" {counted(config.epochs, 'epoch', 'epochs')}"
    return text


def _features(plan: Plan) -> str:
    """How often the features of a frozen backbone are computed, as a phrase."""
    views, inputs = plan.cache.views, plan.inputs
    if views:
        used = views.num_bytes * (len(inputs.training) + len(inputs.validation))
        each = "view, as it is and mirrored" if views.per_image > 1 else "image"
        return f"once for each {each}, then kept ({memory_text(used)} of memory)"
    if plan.config.epochs == 1:
        return "once: there is one epoch"
    reason = _why_views_differ(inputs, plan.framings) or "they cannot be kept, or memory is short"
    return f"in every epoch: {reason}"


def warnings_of(plan: Plan) -> list[str]:
    """What a person should know before the run starts."""
    config, warnings = plan.config, []
    if plan.schedule.warmup_steps >= plan.schedule.total_steps:
        warnings.append(
            f"{parameter('warmup_epochs')} {config.warmup_epochs} epochs is not less than"
            f" {parameter('epochs')} {config.epochs}: the learning rate only rises, and never"
            " decays."
        )
    bad_images = plan.inputs.bad_images
    return [*warnings, *plan.inputs.warnings, *([left_out(bad_images)] if bad_images else [])]


def params_of(plan: Plan) -> dict[str, Any]:
    """What to compare runs by, such as in MLflow: parameters, model, images, decided recipe."""
    inputs, world = plan.inputs, plan.world
    return {
        **plan.config.as_params(),
        "architecture": inputs.model.architecture,
        "pretrained": inputs.model.is_pretrained or inputs.model.is_trained,
        "processes": world.size,
        "device": world.device.type,
        "training_images": len(inputs.training),
        "validation_images": len(inputs.validation),
        "categories": len(inputs.categories),
        **asdict(inputs.recipe),
        "head_lr_factor": plan.head_lr_factor,
        "body_lr_factor": plan.body_lr_factor,
        "optimizer": plan.optimizer.name,
        "precision": plan.precision.name,
    }
