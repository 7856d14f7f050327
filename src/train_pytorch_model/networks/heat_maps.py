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

from contextlib import ExitStack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_SIDE = 2  # places; a single one shows nothing
MAX_SIDE = 64  # of a heat map: the stages above, of images of 224 px, show edges
NUM_STEPS = 8  # from the mean colour to the image
PLACES = (8, 16, 32)  # px of the input that become a place: single ones are noise


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
