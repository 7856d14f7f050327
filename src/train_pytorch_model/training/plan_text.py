"""A plan in words, for the log and for MLflow."""

from dataclasses import asdict
from typing import Any

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.data.cache_budget import memory_text
from train_pytorch_model.data.loader import num_readers
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.colours import MAX_WHITE
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.inputs.unreadable_images import unreadable_images_warning
from train_pytorch_model.networks.licences import describe_licence
from train_pytorch_model.training import fine_tuning
from train_pytorch_model.training.fine_tuning import LearningRateFactors
from train_pytorch_model.training.plan import Plan, why_views_differ


def describe(plan: Plan, lr_factors: LearningRateFactors) -> dict[str, str]:
    """Return the plan for people, title → text, with the reason for every derived number."""
    inputs = plan.inputs
    facts = {
        "Model": _model(plan),
        "Licence": _licence(inputs),
        "Images": (
            f"{len(inputs.training):,} for training, {len(inputs.validation):,} for validation"
        ),
        "Labels": plan.task.describe(inputs),
        "Size": _size(plan),
        "Augmenting": _augmenting(inputs),
        "Smoothing": _smoothing(inputs.recipe),
        "16 bits": _white_level(inputs),
        "Steps": _steps(plan),
        "Optimizer": _optimizer(plan),
        "Peak LR": _learning_rates(plan, lr_factors),
        "Fine-tuning": _frozen_layers(plan),
        "Batch norms": _frozen_statistics(plan),
        "Precision": str(plan.precision),
        "Bits": _determinism(plan),
        "Device": _device(plan.world),
        "Threads": _threads(plan.world),
        "Decoding": plan.cache.summary,
        "Features": _features(plan),
    }
    return {title: text for title, text in facts.items() if text}


def _determinism(plan: Plan) -> str:
    """Return what a deterministic run repeats, and what that costs."""
    if not plan.inputs.recipe.deterministic:
        return ""
    if plan.world.device.type != "cuda":
        return (
            "the same in each run with as many processes and threads: none makes room for other"
            " programs"
        )
    text = "the same in each run on such GPUs: the fastest convolutions are left out,"
    several = ", and gradients are averaged by eager steps" if plan.world.size > 1 else ""
    return f"{text} nothing is compiled{several}; steps take longer"


def _model(plan: Plan) -> str:
    inputs = plan.inputs
    model = inputs.model
    kind = ""
    if model.is_trained:
        kind = "trained "
    elif model.is_pretrained:
        kind = "pretrained "
    text = f"{kind}{model.architecture}, {len(inputs.categories)} categories"
    if model.is_trained and model.is_fine_tuned_for(inputs.categories):
        known = set(inputs.categories) & set(model.categories)
        text += f", {len(known)} of which it knows"
    return text


def _licence(inputs: TrainingInputs) -> str:
    licence = inputs.model.weights_licence
    return describe_licence(licence) if licence else ""


def _size(plan: Plan) -> str:
    framing = plan.inputs.framing
    first = plan.framings[0]
    last = plan.framings[-1]
    text = f"{framing.height} x {framing.width} px ({plan.inputs.size_reason})"
    if not first == last == framing:
        text += f", trained at {first.height} x {first.width}"
    if first != last:
        epoch = plan.framings.index(last) + 1
        text += f", from epoch {epoch} on at {last.height} x {last.width}"
    return text


def _augmenting(inputs: TrainingInputs) -> str:
    recipe = inputs.recipe
    text: str = recipe.augmentation
    if recipe.horizontal_flip:
        text = "flip, no crop" if recipe.augmentation == "none" else f"{text} and flip"
    elif inputs.flip_reason:
        text += f", no flip ({inputs.flip_reason})"
    if recipe.cutmix:
        text += f", CutMix in {recipe.cutmix:.0%} of the steps"
    return text


def _smoothing(recipe: DecidedRecipe) -> str:
    if not recipe.label_smoothing:
        return ""
    return f"label smoothing {recipe.label_smoothing:g}, in the training loss only"


def _white_level(inputs: TrainingInputs) -> str:
    white_level = inputs.recipe.white_level
    if white_level == MAX_WHITE:
        return ""
    reason = "the range that a sample uses"
    if inputs.model.recipe.white_level:
        reason = "the recipe says so"
    return f"0 to {white_level:,} are black to white ({reason})"


def _steps(plan: Plan) -> str:
    processes = counted(plan.world.size, "process", "processes")
    has_smaller_step = len(plan.inputs.training) % plan.global_batch_size > 0
    up_to = "up to " if has_smaller_step else ""
    return (
        f"{plan.steps_per_epoch:,} per epoch, {plan.schedule.total_steps:,} in total:"
        f" {up_to}{plan.global_batch_size} images per step = batch size {plan.config.batch_size} x"
        f" {processes}"
    )


def _optimizer(plan: Plan) -> str:
    is_usual = plan.optimizer.name == "sgd" and plan.inputs.recipe.optimizer == "auto"
    return "" if is_usual else str(plan.optimizer)


def _learning_rates(plan: Plan, lr_factors: LearningRateFactors) -> str:
    """Return the peak, what the learning rate does before and after it, and where it differs."""
    config = plan.config
    peak_lr = plan.schedule.peak_lr
    processes = counted(plan.world.size, "process", "processes")
    rate = f" x {plan.optimizer.rate:g} for AdamW" if plan.optimizer.rate != 1 else ""
    warmup = "no warmup,"
    if plan.schedule.warmup_steps:
        warmup = f"{counted(plan.schedule.warmup_steps, 'warmup step', 'warmup steps')}, then"
    text = (
        f"{peak_lr:g} = learning rate {config.learning_rate:g} x {processes}{rate},"
        f" {warmup} polynomial decay"
    )
    if lr_factors.head != 1:
        text += f"; {lr_factors.head * peak_lr:.2g} for the new last layer"
    if lr_factors.is_whitened:
        text += ", whose steps are as on whitened features"
    if lr_factors.backbone != 1:
        text += f"; {lr_factors.backbone * peak_lr:.2g} for the backbone, the most it tolerates in"
        text += f" {counted(config.epochs, 'epoch', 'epochs')}"
    return text


def _frozen_layers(plan: Plan) -> str:
    if not plan.num_frozen:
        return ""
    return f"the first {fine_tuning.FROZEN_FRACTION:.0%} of the computation stays as given"


def _frozen_statistics(plan: Plan) -> str:
    if not plan.has_frozen_statistics:
        return ""
    num_sampled = fine_tuning.num_sampled(plan.inputs, plan.config.batch_size)
    return (
        f"use frozen pretrained statistics, moved {fine_tuning.STATISTICS_FRACTION:.0%} towards"
        f" those of {num_sampled} training images"
    )


def _device(world: World) -> str:
    readers = num_readers(world)
    if readers:
        return f"{world.device.type}, {readers} processes for loading images"
    return f"{world.device.type}, {counted(world.cores, 'thread', 'threads')} for decoding"


def _threads(world: World) -> str:
    if world.device.type != "cpu":
        return ""
    return f"{world.threads.count}, {world.threads.reason}"


def _features(plan: Plan) -> str:
    """Return how often the features of a frozen backbone are computed."""
    inputs = plan.inputs
    if not inputs.recipe.freeze_backbone:
        return ""
    views = plan.cache.views
    if views:
        num_bytes = views.num_bytes * (len(inputs.training) + len(inputs.validation))
        unit = "view, as it is and mirrored" if views.per_image > 1 else "image"
        when = f"once for each {unit}, then kept ({memory_text(num_bytes)} of memory)"
    elif plan.config.epochs == 1:
        when = "once: there is one epoch"
    else:
        reason = why_views_differ(inputs, plan.framings)
        when = f"in every epoch: {reason or 'they cannot be kept, or memory is short'}"
    return f"of the frozen backbone, {when}"


def warnings_of(plan: Plan) -> list[str]:
    """Return what a person should know before the run starts."""
    config = plan.config
    warnings = []
    if plan.schedule.warmup_steps >= plan.schedule.total_steps:
        warnings.append(
            f"{parameter('warmup_epochs')} {config.warmup_epochs} epochs is not less than"
            f" {parameter('epochs')} {config.epochs}: the learning rate only rises, and never"
            " decays."
        )
    warnings += plan.inputs.warnings
    unreadable_images = plan.inputs.unreadable_images
    if unreadable_images:
        warnings.append(unreadable_images_warning(unreadable_images))
    return warnings


def params_of(plan: Plan, lr_factors: LearningRateFactors) -> dict[str, Any]:
    """Return what to compare runs by, as in MLflow: parameters, model, images, decided recipe."""
    inputs = plan.inputs
    world = plan.world
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
        "head_lr_factor": lr_factors.head,
        "body_lr_factor": lr_factors.backbone,
        "optimizer": plan.optimizer.name,
        "precision": plan.precision.name,
    }
