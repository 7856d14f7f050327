"""A plan in words, for the log and for MLflow."""

from dataclasses import asdict
from typing import Any

from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.data.cache_budget import memory_text
from train_pytorch_model.data.loader import num_readers
from train_pytorch_model.image_classifier.decoding import MAX_WHITE
from train_pytorch_model.inputs.unreadable_images import unreadable_images_warning
from train_pytorch_model.training import fine_tuning
from train_pytorch_model.training.fine_tuning import LearningRateFactors
from train_pytorch_model.training.plan import Plan, why_views_differ


def describe(plan: Plan, lr_factors: LearningRateFactors) -> dict[str, str]:
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
    facts["Peak LR"] = _learning_rates(plan, lr_factors)
    if plan.num_frozen:
        facts["Fine-tuning"] = (
            f"the first {fine_tuning.FROZEN_FRACTION:.0%} of the computation stays as given"
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


def _learning_rates(plan: Plan, lr_factors: LearningRateFactors) -> str:
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
    if lr_factors.head != 1:
        text += f"; {lr_factors.head * peak_lr:.2g} for the new last layer"
    if lr_factors.backbone != 1:
        text += f"; {lr_factors.backbone * peak_lr:.2g} for the backbone, the most it tolerates in"
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
    reason = why_views_differ(inputs, plan.framings) or "they cannot be kept, or memory is short"
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
    unreadable_images = plan.inputs.unreadable_images
    warnings += plan.inputs.warnings
    if unreadable_images:
        warnings.append(unreadable_images_warning(unreadable_images))
    return warnings


def params_of(plan: Plan, lr_factors: LearningRateFactors) -> dict[str, Any]:
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
        "head_lr_factor": lr_factors.head,
        "body_lr_factor": lr_factors.backbone,
        "optimizer": plan.optimizer.name,
        "precision": plan.precision.name,
    }
