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
from train_pytorch_model.reports.gallery import Card, Fact, Gallery
from train_pytorch_model.reports.pictures import small_picture
from train_pytorch_model.training.plan import Plan

BATCH_TITLE = "A batch as training sees it"
MAX_IMAGES = 8  # of the batch
MAX_FACTS = 4  # categories of an image
NONE = "none"


def training_gallery(plan: Plan, images: ImageDirectory) -> Gallery:
    """Return the first images of the first step of the last epoch, when images are largest."""
    batch = _first_of_last_epoch(plan, images)
    if batch is None:
        return Gallery("batch", BATCH_TITLE, "The images can no longer be read.", [])
    framing = plan.framings[-1]
    cutmix = plan.inputs.recipe.cutmix
    text = (
        f"Images of the first step of the last epoch, {framing.height} x {framing.width} px, with"
        " the augmentation of the recipe applied."
    )
    if cutmix:
        text += (
            f" They are mixed by CutMix, as in {cutmix:.0%} of the steps; the percentages are the"
            " targets."
        )
        targets = plan.task.as_probabilities(batch.targets)
        batch = with_cutmix(batch, targets, 1.0, plan.config.random_seed)
    pixels = batch.images.permute(0, 2, 3, 1).numpy()  # (B, H, W, 3)
    cards = [
        Card([small_picture(Image.fromarray(picture))], _facts(target, images), [name])
        for picture, target, name in zip(
            pixels, batch.targets.numpy(), _names(batch.indices, images), strict=True
        )
    ]
    return Gallery("batch", BATCH_TITLE, text, cards)


def _first_of_last_epoch(plan: Plan, images: ImageDirectory) -> Batch | None:
    """Return the batch before it is mixed; None if none of its images can be read any more."""
    seed = plan.config.random_seed
    epoch = len(plan.framings)
    steps = plan_training(
        len(images),
        plan.config.batch_size,
        plan.min_local_batch,
        seed,
        epoch,
        0,
        plan.world.size,
    )
    prepare = for_training(plan.inputs.recipe, plan.framings[-1], plan.inputs.training_framing)
    dataset = training_dataset(images, prepare, seed, epoch)
    indices = []
    pixels = []
    for index in steps[0].indices[:MAX_IMAGES].tolist():
        with suppress(UnreadableImageError):  # deleted since it was trained
            pixels.append(dataset.read(index))
            indices.append(index)
    if not indices:
        return None
    stacked = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2)  # (B, 3, H, W)
    targets = torch.from_numpy(images.targets(np.array(indices)))
    return Batch(stacked, targets, np.array(indices), len(indices), {})


def _names(indices: np.ndarray, images: ImageDirectory) -> list[str]:
    """Return the names of images as their user knows them."""
    originals = zip(indices.tolist(), images.original_names(indices), strict=True)
    return [original or images.file_names[index] for index, original in originals]


def _facts(target: np.ndarray, images: ImageDirectory) -> list[Fact]:
    """Return the category of a target (), or those of several (C,), the larger first."""
    if target.ndim == 0:
        return [Fact("category", images.categories[int(target)])]
    if not target.any():
        return [Fact("category", NONE)]
    order = np.argsort(-target, kind="stable")[:MAX_FACTS]
    return [
        Fact("category", images.categories[index], f"{target[index]:.0%}")
        for index in order
        if target[index] > 0
    ]
