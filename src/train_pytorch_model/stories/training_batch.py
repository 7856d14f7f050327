"""A batch as training sees it, for the report: cropped, mirrored and mixed as the recipe says."""

from contextlib import suppress

import numpy as np
import torch
from PIL import Image

from train_pytorch_model.data.loader import Batch, read_for_training, with_cutmix
from train_pytorch_model.data.plan import plan_training
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import decode_pixels
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.pages.page import Card, Fact, Gallery, small_picture

TITLE = "A batch as training sees it"
MAX_IMAGES = 8


def training_gallery(plan: Plan, images: ImageDirectory) -> Gallery:
    """The first images of the first step of the last epoch, when images are largest."""
    batch = _batch(plan, images)
    if batch is None:
        return Gallery("batch", TITLE, "The images can no longer be read.", [])
    cutmix, framing = plan.inputs.recipe.cutmix, plan.framings[-1]
    text = (
        f"Images of the first step of the last epoch, {framing.height} x {framing.width} px, with the"
        " augmentation of the recipe applied."
    )
    if cutmix:
        text += (
            f" They are mixed by CutMix, as in {cutmix:.0%} of the steps; the percentages are the targets."
        )
        batch = with_cutmix(batch, len(images.categories), 1.0, plan.config.random_seed)
    pixels = batch.images.permute(0, 2, 3, 1).numpy()  # (B, H, W, 3)
    originals = images.original_names(batch.indices)
    cards = [
        Card(
            [small_picture(Image.fromarray(pixels[row]))],
            _facts(batch.targets[row].numpy(), images),
            [original or images.file_names[index]],
        )
        for row, (index, original) in enumerate(zip(batch.indices.tolist(), originals, strict=True))
    ]
    return Gallery("batch", TITLE, text, cards)


def _batch(plan: Plan, images: ImageDirectory) -> Batch | None:
    """The images that can be read, prepared for training; None if there are none."""
    config, recipe, epoch = plan.config, plan.inputs.recipe, len(plan.framings)
    first_step = plan_training(
        len(images), config.batch_size, plan.min_local_batch, config.random_seed, epoch, 0, plan.world.size
    )[0]
    prepared = for_training(recipe, plan.framings[-1], plan.inputs.training_framing)
    read = read_for_training(images, prepared, config.random_seed, epoch)
    indices, pixels = [], []
    for index in first_step.indices[:MAX_IMAGES].tolist():
        with suppress(UnreadableImageError):  # deleted since it was trained
            pixels.append(read(index, decode_pixels))
            indices.append(index)
    if not indices:
        return None
    stacked = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2)  # (B, 3, H, W)
    targets = torch.from_numpy(images.class_indices[indices]).long()
    return Batch(stacked, targets, np.array(indices), len(indices), {})


def _facts(target: np.ndarray, images: ImageDirectory) -> list[Fact]:
    """The category of a target, (), or those of a mixed one, (C,), the larger first."""
    if target.ndim == 0:
        return [Fact("category", images.categories[int(target)])]
    order = np.argsort(-target, kind="stable")[:2]
    return [Fact("category", images.categories[i], f"{target[i]:.0%}") for i in order if target[i] > 0]
