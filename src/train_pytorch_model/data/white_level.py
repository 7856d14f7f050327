"""Which value of 16-bit images is white: microscopes and X-ray detectors use 10 to 14 of the 16 bits.

Scaled by 65,535, such images would be almost black.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from train_pytorch_model.data.decoder_process import ImageRequest, highest_value_as_pixel
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import MAX_WHITE, UnreadableImageError, has_16_bits
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.machine.cores import usable_cores

MAX_IMAGES = 64  # sampled: at 12 megapixels, 2 s on two cores
MIN_BITS = 8


def decide_white_level(inputs: OpenedInputs, world: World) -> OpenedInputs:
    """The inputs with a white level: the recipe's, or that of a sample. The same on all processes."""
    if inputs.recipe.white_level is not None:
        return inputs
    return inputs.with_white_level(
        world.broadcast(find_white_level(inputs.training) if world.is_main else MAX_WHITE)
    )


def find_white_level(images: ImageDirectory) -> int:
    """The highest value of 8 to 16 bits, as many as the 16-bit images of a fixed sample use."""
    paths = map(images.path, evenly_spaced(len(images), MAX_IMAGES).tolist())
    deep = [path for path in paths if _has_16_bits(path)]
    if not deep:
        return MAX_WHITE
    with closing(Decoders()) as decoders, ThreadPoolExecutor(usable_cores()) as pool:
        highest = max(pool.map(lambda path: _highest(path, decoders), deep))
    return (1 << max(MIN_BITS, highest.bit_length())) - 1 if highest else MAX_WHITE


def _has_16_bits(path: Path) -> bool:
    with suppress(UnreadableImageError):  # training reports it
        return has_16_bits(path)
    return False


def _highest(path: Path, decoders: Decoders) -> int:
    with suppress(UnreadableImageError):
        pixels = decoders.prepare_one(highest_value_as_pixel, ImageRequest(os.fspath(path)))
        return int(pixels[0, 0, 0]) * 256 + int(pixels[0, 0, 1])
    return 0
