"""Pictures for the pages: with heat maps of what spoke for the model's answer, and as training sees
them.

At a place of a feature map, features times gradients, summed over the channels, say how much it
speaks for the answer (HiResCAM, Draelos and Carin 2020; LayerCAM, Jiang et al. 2021, is the same
without negative gradients). The last feature maps know best what is meant and the first ones where
it is: as LayerCAM combines stages, those of all are multiplied. The outputs of layers with feature
maps have the image's aspect ratio, and of those with the same size the last one is taken.

Attention moves what it has seen to other places. So a transformer with patches of one size is
explained by its input: gradients on the way from the image's mean colour to the image, times the
difference (Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks), again in places of
several sizes. `tests/benchmarks/data_quality/heat.py` measures both.
"""

from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from train_pytorch_model.data.loader import Batch, plan_training, read_for_training, with_cutmix
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import decode_pixels, read_pixels, view
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.machine.console import logger
from train_pytorch_model.pages.page import Card, Fact, Gallery, Heat, heat_picture, small_picture
from train_pytorch_model.words.errors import reason_of

BATCH_TITLE = "A batch as training sees it"
MAX_IMAGES = 8  # of the batch
MIN_SIDE = 2  # places; a single one shows nothing
MAX_SIDE = 64  # of a heat map: the stages above, of images of 224 px, show edges
NUM_STEPS = 8  # from the mean colour to the image
PLACES = (8, 16, 32)  # px of the input that become a place: single ones are noise


def explain(
    network: nn.Module, spec: ClassifierSpec, images: ImageDirectory, indices: np.ndarray
) -> list[Heat | None]:
    """The heat of the images at `indices`; None for one of which nothing stands out or that is
    gone.

    All are None, with a warning, if the network cannot be explained or the memory does not suffice.
    `network` maps normalized images (B, 3, H, W) to logits; it is left in evaluation mode.
    """
    network.eval()
    normalize = Normalize(spec.mean, spec.std).to(next(network.parameters()).device)
    try:
        return [
            _explain(network, normalize, spec.framing, images.path(each))
            for each in indices.tolist()
        ]
    except RuntimeError as error:  # the page is good without
        logger.warning(f"The page has no heat maps: {reason_of(error)}.")
        return [None] * len(indices)


def _explain(network: nn.Module, normalize: Normalize, framing: Framing, path: Path) -> Heat | None:
    try:
        pixels = read_pixels(path, framing.short_side, framing.colours)
    except UnreadableImageError:  # deleted since it was predicted
        return None
    device = next(network.parameters()).device
    image = (
        torch.tensor(view(pixels, framing), device=device).permute(2, 0, 1).unsqueeze(0)
    )  # (1, 3, H, W)
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
        box = (
            (columns - across) / 2,
            (rows - shown) / 2,
            (columns + across) / 2,
            (rows + shown) / 2,
        )
        size = max(1, round(across)), max(1, round(shown))
        heat = np.asarray(Image.fromarray(heat).resize(size, Image.Resampling.BILINEAR, box=box))
    return Heat(heat_picture(heat), (0, 0, 1, 1))


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
    read = read_for_training(
        images, for_training(recipe, framing, plan.inputs.training_framing), seed, epoch
    )
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


def heat_map(network: nn.Module, image: Tensor) -> np.ndarray | None:
    """Return (h, w), float32, from 0 to 1: how much each part of the image speaks for what is
    predicted.

    The image (1, 3, H, W) is what `network`, in evaluation mode, gets. None if no part speaks for
    it more than others. Costs a forward and a backward pass; for a transformer with patches of one
    size, nine.
    """
    stages = _heat_of_stages(network, image)
    if len(stages) < 2:  # integrated gradients
        mean = image.mean(dim=(2, 3), keepdim=True)
        shares = (torch.arange(NUM_STEPS, device=image.device) + 0.5) / NUM_STEPS
        steps = (mean + shares.view(-1, 1, 1, 1) * (image - mean)).requires_grad_()
        (gradients,) = torch.autograd.grad(_odds(network, steps, image), steps)
        heat = (gradients.mean(dim=0) * (image - mean)).sum(dim=1)  # (1, H, W)
        stages = [F.avg_pool2d(heat, side, ceil_mode=True)[0] for side in PLACES]
    # The product of the maps, each as far as it is above its mean, at the size of the first, the
    # largest.
    product = torch.ones(stages[0].shape)
    for stage in (each.cpu() for each in stages):
        heat = F.relu(stage - stage.mean().clamp(min=0))
        if heat.any():  # otherwise, of the smallest maps, nothing stands out
            resized = F.interpolate(heat[None, None], product.shape, mode="bilinear")[0, 0]
            product *= resized / heat.max()
    highest = product.max()
    return (product / highest).numpy() if highest > product.min() else None


def _heat_of_stages(network: nn.Module, image: Tensor) -> list[Tensor]:
    """Maps (height, width) of decreasing size: features times gradients."""
    found: list[
        tuple[Tensor, int, int, int]
    ] = []  # of (1, ., ., .), with height, width, axis of channels
    height, width = image.shape[-2:]

    def record(_: nn.Module, __: object, output: object) -> None:
        if (
            not isinstance(output, Tensor)
            or output.ndim != 4
            or len(output) != 1
            or not output.requires_grad
        ):
            return
        most_rows, most_columns = found[-1][1:3] if found else (height, width)
        one, two, three = output.shape[1:]
        # Channels come first or, in some transformers, last.
        for rows, columns, axis in ((two, three, 1), (one, two, 3)):
            fits = MIN_SIDE <= rows <= most_rows and MIN_SIDE <= columns <= most_columns
            if (
                fits and abs(rows - height / width * columns) < 1 + height / width
            ):  # sides are rounded
                found.append((output, rows, columns, axis))
                return

    with ExitStack() as hooks:
        for module in network.modules():
            hooks.callback(module.register_forward_hook(record).remove)
        odds = _odds(network, image.clone().requires_grad_())
    gradients = torch.autograd.grad(odds, [output for output, *_ in found], allow_unused=True)
    stages: dict[tuple[int, int], Tensor] = {}
    for (output, rows, columns, axis), gradient in zip(found, gradients, strict=True):
        if gradient is not None and max(rows, columns) <= MAX_SIDE:
            stages[rows, columns] = (output.detach() * gradient).float().sum(dim=axis)[0]
    return list(stages.values())


def _odds(network: nn.Module, images: Tensor, image: Tensor | None = None) -> Tensor:
    """The logarithm of the odds of what is predicted of an image, summed over images (B, 3, H, W)."""
    with torch.enable_grad():
        logits: Tensor = network(images).float()  # (B, C)
        with torch.no_grad():
            predicted = (logits if image is None else network(image))[0].argmax()
        is_predicted = torch.arange(logits.shape[1], device=logits.device) == predicted
        return (
            logits[:, is_predicted].squeeze(1) - logits[:, ~is_predicted].logsumexp(dim=1)
        ).sum()
