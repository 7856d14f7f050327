"""torchvision's operations, applied to an image by a seed."""

import threading
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch.linalg import LinAlgError  # type: ignore[attr-defined]  # not in its __all__
from torchvision.transforms import InterpolationMode, v2

from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.formats.transformation_directory import Operation
from train_pytorch_model.image_classifier import decoding

# torchvision draws from torch's one global generator, so one thread at a time may seed it and draw:
# 0.01 to 0.3 ms per operation. Decoding, resampling and encoding take milliseconds, and run in
# parallel.
_drawing = threading.Lock()


class OperationError(Exception):
    """An operation cannot be applied to an image; the text is the reason, without the file."""


class ImageTransform:
    """Operations as a function of an image and its index, whatever the threads.

    Seeds torch's generator.
    """

    def __init__(self, operations: Sequence[Operation], seed: int) -> None:
        self._seed = seed
        self._steps = [(operation, _step_of(operation)) for operation in operations]

    def __call__(self, image: Image.Image, index: int) -> Image.Image:
        """Return the transformed image: RGB, or L after Grayscale. Raises `OperationError`."""
        for number, (operation, step) in enumerate(self._steps):
            seed = derive_seed(self._seed, "transform", index, number)
            try:
                _check_size(operation, image)
                image = _apply(step, image, seed)
            except (ValueError, LinAlgError) as error:  # or too small to be cropped or tilted
                reason = " ".join(str(error).split()).rstrip(".")
                raise OperationError(
                    f"{operation.name} cannot be applied to {image.width} x {image.height} pixels:"
                    f" {reason}"
                ) from error
        return image


def _step_of(operation: Operation) -> Any:
    """Return torchvision's transform."""
    arguments = operation.arguments()
    if "interpolation" in arguments:
        arguments["interpolation"] = InterpolationMode(arguments["interpolation"])
    transform = getattr(v2, operation.name)  # our class's name, not a file's text
    return transform(**arguments)


def _check_size(operation: Operation, image: Image.Image) -> None:
    """Raise `ValueError` if the operation would make too large an image."""
    height, width = operation.bound(image.height, image.width)
    limit = decoding.MAX_PIXELS
    if height * width > limit:
        raise ValueError(f"{width:,} x {height:,} pixels would be more than {limit:,}")


def _apply(step: Any, image: Image.Image, seed: int) -> Image.Image:
    with _drawing:
        torch.default_generator.manual_seed(seed)
        if hasattr(step, "p") and torch.rand(1) >= step.p:
            return image
        parameters = step.make_params([image])
    transformed: Image.Image = step.transform(image, parameters)
    return transformed
