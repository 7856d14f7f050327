"""What is asked of the thread or process that prepares an image."""

from collections.abc import Callable
from typing import NamedTuple

from train_pytorch_model.data.cache import DecodeCache
from train_pytorch_model.image_classifier.decoding import Pixels


class ImageRequest(NamedTuple):
    """An image to prepare."""

    file: str
    number: int = 0  # its number in the cache
    seed: int = 0  # of its augmentation


# Returns the pixels of an image, from the cache if it has them; raises `UnreadableImageError`.
Prepare = Callable[[ImageRequest, DecodeCache | None], Pixels]
