"""Pictures of what spoke for a prediction: the heat of an image, drawn over it."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from train_pytorch_model.config.wording import reason_of
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.library_lines import library_lines
from train_pytorch_model.networks.heat_maps import heat_map
from train_pytorch_model.reports.gallery import Heat
from train_pytorch_model.reports.pictures import heat_picture


def explain(
    network: nn.Module, spec: ClassifierSpec, images: ImageDirectory, indices: np.ndarray
) -> list[Heat | None]:
    """Return the heat of the images at `indices`.

    It is None for an image of which nothing stands out, or that is gone. All are None, with a
    warning, if the network cannot be explained or the memory does not suffice. `network` maps
    normalized images (B, 3, H, W) to logits; it is left in evaluation mode.
    """
    network.eval()
    normalize = Normalize(spec.mean, spec.std).to(next(network.parameters()).device)
    try:
        return [
            _explain(network, normalize, spec.framing, images.path(index))
            for index in indices.tolist()
        ]
    except RuntimeError as error:  # the page is good without
        logger.warning(f"The page has no heat maps: {reason_of(error)}.")
        return [None] * len(indices)


def _explain(network: nn.Module, normalize: Normalize, framing: Framing, path: Path) -> Heat | None:
    try:
        with library_lines:
            pixels = read_pixels(path, framing.short_side, framing.colours)
    except UnreadableImageError:  # deleted since it was predicted
        return None
    device = next(network.parameters()).device
    framed = torch.tensor(view(pixels, framing), device=device)  # (H, W, 3)
    image = framed.permute(2, 0, 1).unsqueeze(0)  # (1, 3, H, W)
    heat = heat_map(network, normalize(image))
    if heat is None:
        return None
    # It is of the framed image, and shown on the whole one.
    height, width = pixels.shape[:2]
    region = (0.0, 0.0, 1.0, 1.0)
    if framing.mode == "crop" and (height, width) != (framing.height, framing.width):
        left, top, right, bottom = framing.box(width, height)
        region = (left / width, top / height, (right - left) / width, (bottom - top) / height)
    elif framing.mode == "pad":
        heat = _without_padding(heat, framing, height, width)
    return Heat(heat_picture(heat), region)


def _without_padding(heat: np.ndarray, framing: Framing, height: int, width: int) -> np.ndarray:
    """Return the middle of the heat (h, w), where an image of this size is in its frame."""
    rows, columns = heat.shape
    inner_height, inner_width = framing.inner_size(height, width)
    inner_rows = rows * inner_height / framing.height
    inner_columns = columns * inner_width / framing.width
    box = (
        (columns - inner_columns) / 2,
        (rows - inner_rows) / 2,
        (columns + inner_columns) / 2,
        (rows + inner_rows) / 2,
    )
    size = (max(1, round(inner_columns)), max(1, round(inner_rows)))
    return np.asarray(Image.fromarray(heat).resize(size, Image.Resampling.BILINEAR, box=box))
