"""A batch as training sees it, as pictures."""

from contextlib import suppress

import numpy as np
import torch
from PIL import Image

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cutmix import with_cutmix
from train_pytorch_model.data.dataset import training_dataset
from train_pytorch_model.data.epoch_plan import plan_training
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.reports.galleries import Card, Fact, Gallery
from train_pytorch_model.reports.pictures import small_picture
from train_pytorch_model.training.plan import Plan

BATCH_TITLE = "A batch as training sees it"
MAX_IMAGES = 8  # of the batch


def training_gallery(plan: Plan, images: ImageDirectory) -> Gallery:
    """The first images of the first step of the last epoch, when images are largest."""
    config, recipe, epoch, framing = (
        plan.config,
        plan.inputs.recipe,
        len(plan.framings),
        plan.framings[-1],
    )
    seed, local, size = config.random_seed, plan.min_local_batch, plan.world.size
    first_step = plan_training(len(images), config.batch_size, local, seed, epoch, 0, size)[0]
    dataset = training_dataset(
        images, for_training(recipe, framing, plan.inputs.training_framing), seed, epoch
    )
    indices, pixels = [], []
    for index in first_step.indices[:MAX_IMAGES].tolist():
        with suppress(UnreadableImageError):  # deleted since it was trained
            pixels.append(dataset.read(index))
            indices.append(index)
    if not indices:
        return Gallery("batch", BATCH_TITLE, "The images can no longer be read.", [])
    stacked = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2)  # (B, 3, H, W)
    targets = torch.from_numpy(images.class_indices[indices]).long()
    batch = Batch(stacked, targets, np.array(indices), len(indices), {})
    text = (
        f"Images of the first step of the last epoch, {framing.height} x {framing.width} px, with"
        " the"
        " augmentation of the recipe applied."
    )
    if recipe.cutmix:
        text += (
            f" They are mixed by CutMix, as in {recipe.cutmix:.0%} of the steps; the percentages"
            " are the"
            " targets."
        )
        batch = with_cutmix(batch, len(images.categories), 1.0, seed)
    shown = batch.images.permute(0, 2, 3, 1).numpy()  # (B, H, W, 3)
    originals = zip(batch.indices.tolist(), images.original_names(batch.indices), strict=True)
    names = [original or images.file_names[index] for index, original in originals]
    cards = [
        Card([small_picture(Image.fromarray(each))], _facts(target, images), [name])
        for each, target, name in zip(shown, batch.targets.numpy(), names, strict=True)
    ]
    return Gallery("batch", BATCH_TITLE, text, cards)


def _facts(target: np.ndarray, images: ImageDirectory) -> list[Fact]:
    """The category of a target, (), or those of a mixed one, (C,), the larger first."""
    if target.ndim == 0:
        return [Fact("category", images.categories[int(target)])]
    order = np.argsort(-target, kind="stable")[:2]
    return [
        Fact("category", images.categories[i], f"{target[i]:.0%}") for i in order if target[i] > 0
    ]
