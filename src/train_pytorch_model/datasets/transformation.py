"""Applying a transformation: torchvision's operations on one image, as a pure function of a seed."""

import threading
from collections.abc import Sequence

import torch
from PIL import Image
from torch.linalg import LinAlgError  # type: ignore[attr-defined]  # documented, and not in its __all__
from torchvision.transforms import InterpolationMode, v2

from train_pytorch_model.formats.image_operations import Operation
from train_pytorch_model.image_classifier.decoding import MAX_PIXELS
from train_pytorch_model.words.seeds import derive_seed

# torchvision draws from torch's one global generator, so one thread at a time may seed it and draw: 0.01 to
# 0.3 ms per operation. Decoding, resampling and encoding take milliseconds, and run in parallel.
_drawing = threading.Lock()


class MisfitError(Exception):
    """An operation cannot be applied to an image; the text is the reason, without the file's name."""


class Apply:
    """Operations as a function of an image and its index: the result does not depend on threads or order.

    Seeds and uses torch's global generator.
    """

    def __init__(self, operations: Sequence[Operation], seed: int) -> None:
        self._steps = [(operation, build(operation)) for operation in operations]
        self._seed = seed

    def __call__(self, image: Image.Image, index: int) -> Image.Image:
        """Return the transformed image: RGB, or L after Grayscale. Raises `MisfitError`."""
        for number, (operation, step) in enumerate(self._steps):
            height, width = operation.bound(image.height, image.width)
            if height * width > MAX_PIXELS:
                reason = f"{width:,} x {height:,} pixels would be more than {MAX_PIXELS:,}"
                raise _misfit(operation, image, reason)
            try:
                image = _apply(step, image, derive_seed(self._seed, "transform", index, number))
            except (ValueError, LinAlgError) as error:  # too small to be cropped or tilted
                raise _misfit(operation, image, str(error)) from error
        return image


def build(operation: Operation) -> v2.Transform:
    """Return torchvision's transform of that name with those arguments."""
    arguments = operation.arguments()
    if "interpolation" in arguments:
        arguments["interpolation"] = InterpolationMode(arguments["interpolation"])
    transform: v2.Transform = getattr(v2, operation.name)(**arguments)  # our class's name, not a file's text
    return transform


def _apply(step: v2.Transform, image: Image.Image, seed: int) -> Image.Image:
    """Return `step(image)` after `torch.manual_seed(seed)`; only drawing parameters holds the lock."""
    with _drawing:
        torch.default_generator.manual_seed(seed)
        if hasattr(step, "p") and torch.rand(1) >= step.p:
            return image
        parameters = step.make_params([image])
    transformed: Image.Image = step.transform(image, parameters)
    return transformed


def _misfit(operation: Operation, image: Image.Image, reason: str) -> MisfitError:
    text = " ".join(reason.split()).rstrip(".")
    return MisfitError(f"{operation.name} cannot be applied to {image.width} x {image.height} pixels: {text}")
