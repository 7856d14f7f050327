"""Heat maps of what spoke for a network's answer.

At a position of a feature map, features times gradients, summed over the channels, say how much it
speaks for the answer (HiResCAM, Draelos and Carin 2020; LayerCAM, Jiang et al. 2021, is the same
without negative gradients). The last feature maps know best what is meant and the first ones where
it is: as LayerCAM combines stages, those of all are multiplied. The outputs of layers with feature
maps have the image's aspect ratio, and of those with the same size the last one counts.

Attention moves what it has seen to other positions. So a transformer with patches of one size is
explained by its input: gradients on the way from the image's mean colour to the image, times the
difference (Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks), again at positions
of several sizes. `tests/benchmarks/data_quality/heat.py` measures both.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_SIDE = 2  # positions; a single one shows nothing
MAX_SIDE = 64  # of a heat map: the stages above, of images of 224 px, show edges
NUM_STEPS = 8  # from the mean colour to the image
POOLED_SIDES = (8, 16, 32)  # px of the input that become a position: single ones are noise


def heat_map(network: nn.Module, image: Tensor) -> np.ndarray | None:
    """Return how much each part of an image speaks for what is predicted; None if all do alike.

    The map (h, w), float32, has values from 0 to 1. The image (1, 3, H, W) is what `network`, in
    evaluation mode, gets. Costs a forward and a backward pass; for a transformer with patches of
    one size, nine.
    """
    stages = _heat_of_features(network, image)
    if len(stages) < 2:
        stages = _heat_of_pixels(network, image)
    product = _product_of([stage.cpu() for stage in stages])
    highest = product.max()
    if highest > product.min():
        return (product / highest).numpy()
    return None


def _heat_of_pixels(network: nn.Module, image: Tensor) -> list[Tensor]:
    """Return maps of decreasing size by integrated gradients, from the mean colour to the image."""
    mean = image.mean(dim=(2, 3), keepdim=True)  # (1, 3, 1, 1)
    fractions = (torch.arange(NUM_STEPS, device=image.device) + 0.5) / NUM_STEPS
    images = (mean + fractions.view(-1, 1, 1, 1) * (image - mean)).requires_grad_()
    (gradients,) = torch.autograd.grad(_log_odds(network, images, image), images)
    heat = (gradients.mean(dim=0) * (image - mean)).sum(dim=1)  # (1, H, W)
    return [F.avg_pool2d(heat, side, ceil_mode=True)[0] for side in POOLED_SIDES]


def _product_of(stages: Sequence[Tensor]) -> Tensor:
    """Return the product of maps, each as far as it is above its mean, at the size of the first."""
    product = torch.ones(stages[0].shape)
    for stage in stages:
        heat = F.relu(stage - stage.mean().clamp(min=0))
        if heat.any():  # otherwise, of the smallest maps, nothing stands out
            resized = F.interpolate(heat[None, None], product.shape, mode="bilinear")[0, 0]
            product *= resized / heat.max()
    return product


@dataclass(frozen=True)
class _FeatureMap:
    """A layer's output with a value for each channel and position of an image."""

    features: Tensor  # (1, C, rows, columns) or (1, rows, columns, C)
    rows: int
    columns: int
    channel_axis: int

    @classmethod
    def of(
        cls, output: object, aspect_ratio: float, max_size: tuple[int, int]
    ) -> "_FeatureMap | None":
        """Return a layer's output as a feature map of an image; None if it is none."""
        if not isinstance(output, Tensor) or not output.requires_grad:
            return None
        if output.ndim != 4 or len(output) != 1:
            return None
        max_rows, max_columns = max_size
        _, one, two, three = output.shape
        # Channels come first or, in some transformers, last.
        for rows, columns, channel_axis in ((two, three, 1), (one, two, 3)):
            fits = MIN_SIDE <= rows <= max_rows and MIN_SIDE <= columns <= max_columns
            # Sides are rounded.
            if fits and abs(rows - aspect_ratio * columns) < 1 + aspect_ratio:
                return cls(output, rows, columns, channel_axis)
        return None

    def heat(self, gradients: Tensor) -> Tensor:
        """Return (rows, columns): features times gradients, summed over the channels."""
        products = (self.features.detach() * gradients).float()
        return products.sum(dim=self.channel_axis)[0]


def _heat_of_features(network: nn.Module, image: Tensor) -> list[Tensor]:
    """Return maps (rows, columns) of decreasing size: features times gradients."""
    height, width = image.shape[-2:]
    feature_maps: list[_FeatureMap] = []

    def record(_: nn.Module, __: object, output: object) -> None:
        max_size = (height, width)
        if feature_maps:
            max_size = (feature_maps[-1].rows, feature_maps[-1].columns)
        feature_map = _FeatureMap.of(output, height / width, max_size)
        if feature_map is not None:
            feature_maps.append(feature_map)

    with ExitStack() as hooks:
        for module in network.modules():
            hooks.callback(module.register_forward_hook(record).remove)
        log_odds = _log_odds(network, image.clone().requires_grad_(), None)
    all_features = [feature_map.features for feature_map in feature_maps]
    gradients = torch.autograd.grad(log_odds, all_features, allow_unused=True)
    return _last_of_each_size(feature_maps, gradients)


def _last_of_each_size(
    feature_maps: Sequence[_FeatureMap], gradients: Iterable[Tensor | None]
) -> list[Tensor]:
    """Return the heat of the last feature map of each size that the answer depends on."""
    stages: dict[tuple[int, int], Tensor] = {}
    for feature_map, gradient in zip(feature_maps, gradients, strict=True):
        size = (feature_map.rows, feature_map.columns)
        if gradient is not None and max(size) <= MAX_SIDE:
            stages[size] = feature_map.heat(gradient)
    return list(stages.values())


def _log_odds(network: nn.Module, images: Tensor, image: Tensor | None) -> Tensor:
    """Return the logarithm of the odds of a category, summed over images (B, 3, H, W).

    It is the category that is predicted for `image`, by default the first of the images.
    """
    with torch.enable_grad():
        logits: Tensor = network(images).float()  # (B, C)
        with torch.no_grad():
            logits_of_image = logits if image is None else network(image)
            predicted = logits_of_image[0].argmax()
        is_predicted = torch.arange(logits.shape[1], device=logits.device) == predicted
        of_predicted = logits[:, is_predicted].squeeze(1)
        of_others = logits[:, ~is_predicted].logsumexp(dim=1)
        return (of_predicted - of_others).sum()
