"""Heat maps over pictures: what in an image spoke for the model's answer."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.normalization import Normalize
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.heat_maps import heat_map
from train_pytorch_model.networks.models import build_model
from train_pytorch_model.pages.page import Heat, heat_picture
from train_pytorch_model.words.wording import reason_of


def explain(
    network: nn.Module, spec: ClassifierSpec, images: ImageDirectory, indices: np.ndarray
) -> list[Heat | None]:
    """The heat of the images at `indices`; None for one of which nothing stands out or that is gone.

    All are None, with a warning, if the network cannot be explained or the memory does not suffice.

    `network` maps normalized images (B, 3, H, W) to logits; it is left in evaluation mode.
    """
    network.eval()
    device = next(network.parameters()).device
    normalize = Normalize(spec.mean, spec.std).to(device)
    paths = [images.path(index) for index in indices.tolist()]
    try:
        return [_explain(network, normalize, spec.framing, device, path) for path in paths]
    except RuntimeError as error:  # the page is good without
        logger.warning(f"The page has no heat maps: {reason_of(error)}.")
        return [None] * len(paths)


def explain_trained(inputs: ScoringInputs, device: torch.device, indices: np.ndarray) -> list[Heat | None]:
    """`explain` the trained model of these inputs, for its images at `indices`."""
    network = build_model(inputs.model, inputs.spec.categories).to(device)
    return explain(network, inputs.spec, inputs.images, indices)


def _explain(
    network: nn.Module, normalize: Normalize, framing: Framing, device: torch.device, path: Path
) -> Heat | None:
    try:
        pixels = read_pixels(path, framing.short_side, framing.colours)
    except UnreadableImageError:  # deleted since it was predicted
        return None
    image = torch.tensor(view(pixels, framing), device=device).permute(2, 0, 1).unsqueeze(0)  # (1, 3, H, W)
    heat = heat_map(network, normalize(image))
    return None if heat is None else _place(heat, framing, *pixels.shape[:2])


def _place(heat: np.ndarray, framing: Framing, height: int, width: int) -> Heat:
    """The heat of a framed image, on the whole image, of that size."""
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
