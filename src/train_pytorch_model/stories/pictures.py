"""Pictures for the pages: with heat maps of what spoke for the model's answer, and as training sees them."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from train_pytorch_model.data.loader import Batch, read_for_training, with_cutmix
from train_pytorch_model.data.plan import plan_training
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import decode_pixels, read_pixels, view
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.heat_maps import heat_map
from train_pytorch_model.pages.page import Card, Fact, Gallery, Heat, heat_picture, small_picture
from train_pytorch_model.words.errors import reason_of

BATCH_TITLE = "A batch as training sees it"
MAX_IMAGES = 8  # of the batch


def explain(
    network: nn.Module, spec: ClassifierSpec, images: ImageDirectory, indices: np.ndarray
) -> list[Heat | None]:
    """The heat of the images at `indices`; None for one of which nothing stands out or that is gone.

    All are None, with a warning, if the network cannot be explained or the memory does not suffice.
    `network` maps normalized images (B, 3, H, W) to logits; it is left in evaluation mode.
    """
    network.eval()
    normalize = Normalize(spec.mean, spec.std).to(next(network.parameters()).device)
    try:
        return [_explain(network, normalize, spec.framing, images.path(each)) for each in indices.tolist()]
    except RuntimeError as error:  # the page is good without
        logger.warning(f"The page has no heat maps: {reason_of(error)}.")
        return [None] * len(indices)


def _explain(network: nn.Module, normalize: Normalize, framing: Framing, path: Path) -> Heat | None:
    try:
        pixels = read_pixels(path, framing.short_side, framing.colours)
    except UnreadableImageError:  # deleted since it was predicted
        return None
    device = next(network.parameters()).device
    image = torch.tensor(view(pixels, framing), device=device).permute(2, 0, 1).unsqueeze(0)  # (1, 3, H, W)
    heat = heat_map(network, normalize(image))
    if heat is None:
        return None
    # It is of the framed image, and shown on the whole one.
    height, width = pixels.shape[:2]
    if framing.mode == "crop" and (height, width) != (framing.height, framing.width):
        left, top, right, bottom = framing.box(width, height)
        region = (left / width, top / height, (right - left) / width, (bottom - top) / height)
        return Heat(heat_picture(heat), region)
    if framing.mode == "pad":  # the image is the middle of its frame
        rows, columns = heat.shape
        inner_height, inner_width = framing.inner_size(height, width)
        shown, across = rows * inner_height / framing.height, columns * inner_width / framing.width
        box = ((columns - across) / 2, (rows - shown) / 2, (columns + across) / 2, (rows + shown) / 2)
        size = max(1, round(across)), max(1, round(shown))
        heat = np.asarray(Image.fromarray(heat).resize(size, Image.Resampling.BILINEAR, box=box))
    return Heat(heat_picture(heat), (0, 0, 1, 1))


def training_gallery(plan: Plan, images: ImageDirectory) -> Gallery:
    """The first images of the first step of the last epoch, when images are largest."""
    config, recipe, epoch, framing = plan.config, plan.inputs.recipe, len(plan.framings), plan.framings[-1]
    seed, local, size = config.random_seed, plan.min_local_batch, plan.world.size
    first_step = plan_training(len(images), config.batch_size, local, seed, epoch, 0, size)[0]
    read = read_for_training(images, for_training(recipe, framing, plan.inputs.training_framing), seed, epoch)
    indices, pixels = [], []
    for index in first_step.indices[:MAX_IMAGES].tolist():
        with suppress(UnreadableImageError):  # deleted since it was trained
            pixels.append(read(index, decode_pixels))
            indices.append(index)
    if not indices:
        return Gallery("batch", BATCH_TITLE, "The images can no longer be read.", [])
    stacked = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2)  # (B, 3, H, W)
    targets = torch.from_numpy(images.class_indices[indices]).long()
    batch = Batch(stacked, targets, np.array(indices), len(indices), {})
    text = (
        f"Images of the first step of the last epoch, {framing.height} x {framing.width} px, with the"
        " augmentation of the recipe applied."
    )
    if recipe.cutmix:
        text += (
            f" They are mixed by CutMix, as in {recipe.cutmix:.0%} of the steps; the percentages are the"
            " targets."
        )
        batch = with_cutmix(batch, len(images.categories), 1.0, seed)
    shown = batch.images.permute(0, 2, 3, 1).numpy()  # (B, H, W, 3)
    originals = images.original_names(batch.indices)
    cards = [
        Card(
            [small_picture(Image.fromarray(each))],
            _facts(target, images),
            [original or images.file_names[index]],
        )
        for each, target, index, original in zip(
            shown, batch.targets.numpy(), batch.indices.tolist(), originals, strict=True
        )
    ]
    return Gallery("batch", BATCH_TITLE, text, cards)


def _facts(target: np.ndarray, images: ImageDirectory) -> list[Fact]:
    """The category of a target, (), or those of a mixed one, (C,), the larger first."""
    if target.ndim == 0:
        return [Fact("category", images.categories[int(target)])]
    order = np.argsort(-target, kind="stable")[:2]
    return [Fact("category", images.categories[i], f"{target[i]:.0%}") for i in order if target[i] > 0]
