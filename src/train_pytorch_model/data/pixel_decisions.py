"""What the pixels of a sample decide: mirroring in training, and which value is white in 16 bits.

Digits, text, signs and X-rays have a left and a right; most photographs do not. A linear classifier
on thumbnails decides, as in visual chirality (Lin et al., CVPR 2020): it tells 89 to 98 % of 256
handwritten digits, 74 to 89 % of clothes, and 43 to 57 % of CIFAR-10 images from their mirror
images.

Microscopes and X-ray detectors use 10 to 14 of 16 bits: scaled by 65,535, their images would be
almost black.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

import numpy as np

from train_pytorch_model.data.decoders import Decoders, highest_value_as_pixel
from train_pytorch_model.data.loader import start_decoders
from train_pytorch_model.data.requests import ImageRequest
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.colours import MAX_WHITE, Colours
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import resize
from train_pytorch_model.inputs.opening import OpenedInputs, TrainingInputs
from train_pytorch_model.machine.cores import usable_cores

MAX_IMAGES = 256  # sampled: 0.4 s for photographs of 500 x 375 px on two cores
MAX_CATEGORIES = 8  # evenly spaced: 8 categories of 32 images are more conclusive than 64 of 4
MIN_IMAGES = 16  # of a category; smaller ones are pooled
SIDE = 16  # px of a thumbnail
FOLDS = 5
MIN_DISTINGUISHABLE = 0.65  # minimum fraction of images distinguished, and …
DEVIATIONS = 4.0  # … standard deviations above chance, which is half
MAX_DEEP_IMAGES = 64  # sampled for their white: at 12 megapixels, 2 s on two cores
MIN_BITS = 8


def decide_flips(inputs: OpenedInputs, world: World) -> TrainingInputs:
    """Return the inputs with flips that the pixels decide, if the recipe leaves them open.

    The same on all processes.
    """
    if isinstance(inputs.recipe.horizontal_flip, bool):
        return inputs.with_flips(inputs.recipe.horizontal_flip)
    distinguished = count = 0
    if world.is_main:
        colours = inputs.framing.colours
        distinguished, count = count_distinguishable(inputs.training, colours, world)
    distinguished, count = world.broadcast((distinguished, count))

    chance = count / 2
    deviation = math.sqrt(count) / 2
    is_significant = distinguished > chance + DEVIATIONS * deviation
    if is_significant and distinguished > count * MIN_DISTINGUISHABLE:
        reason = f"{distinguished} of {count} images are distinguishable from their mirror images"
        return inputs.with_flips(False, reason)
    return inputs.with_flips(True, "")


def count_distinguishable(
    images: ImageDirectory, colours: Colours, world: World
) -> tuple[int, int]:
    """Return how many images of a fixed sample are distinguished from their mirror images.

    And how many the sample has.
    """
    by_category = _sampled_thumbnails(images, colours, world)
    large = [thumbnails for thumbnails in by_category if len(thumbnails) >= MIN_IMAGES]
    small = [thumbnails for thumbnails in by_category if len(thumbnails) < MIN_IMAGES]
    pooled = list(chain.from_iterable(small))
    groups = [*large, pooled] if pooled else large
    distinguished = sum(count_classified(np.stack(group)) for group in groups)
    return distinguished, sum(map(len, by_category))


def _sampled_thumbnails(
    images: ImageDirectory, colours: Colours, world: World
) -> list[list[np.ndarray]]:
    """Return the brightness (SIDE, SIDE), float64, of a fixed sample's images, by category."""
    present = np.flatnonzero(images.class_counts())
    by_category = []
    with start_decoders(world) as decoders, ThreadPoolExecutor(world.cores) as pool:

        def thumbnail(index: int) -> np.ndarray | None:
            with suppress(UnreadableImageError):  # training reports it
                pixels = resize(decoders.decode(images.path(index), SIDE, colours), SIDE, SIDE)
                brightness: np.ndarray = pixels.mean(axis=2)
                return brightness
            return None

        for category in present[evenly_spaced(len(present), MAX_CATEGORIES)]:
            per_category = MAX_IMAGES // min(MAX_CATEGORIES, len(present))
            of_category = images.with_category(int(category))
            sample = of_category[evenly_spaced(len(of_category), per_category)]
            thumbnails = pool.map(thumbnail, sample.tolist())
            by_category.append([pixels for pixels in thumbnails if pixels is not None])
    return by_category


def count_classified(thumbnails: np.ndarray) -> int:
    """Return how many of these images a linear classifier distinguishes from their mirror images.

    It is trained on the others.

    `thumbnails`: (N, S, S), float, brightness. The classifier is Fisher's linear discriminant
    between images and mirror images, ridge-regularized and cross-validated; an image that equals
    its mirror image does not count. Importing scikit-learn's would take longer than the whole test.
    """
    half = thumbnails.shape[2] // 2
    # The antisymmetric part: mirroring flips its sign, so one half of it holds everything.
    sides = (thumbnails - thumbnails[:, :, ::-1])[:, :, :half].reshape(len(thumbnails), -1)
    lengths = np.linalg.norm(sides, axis=1, keepdims=True)
    sides = np.divide(sides, lengths, out=np.zeros_like(sides), where=lengths > 0)
    fold_of = np.arange(len(sides)) % FOLDS
    distinguished = 0
    for fold in range(FOLDS):
        training = sides[fold_of != fold]
        validation = sides[fold_of == fold]
        if not training.any():
            continue
        # The class means are +mean and -mean, with a shared scatter matrix; the ridge is its mean
        # variance.
        scatter = training.T @ training / len(training)
        ridge = np.trace(scatter) / len(scatter)
        mean = training.mean(axis=0)
        direction = np.linalg.solve(scatter + ridge * np.eye(len(scatter)), mean)
        distinguished += int(np.count_nonzero(validation @ direction > 0))
    return distinguished


def decide_white_level(inputs: OpenedInputs, world: World) -> OpenedInputs:
    """Return the inputs with a white level: the recipe's, or that of a sample.

    The same on all processes.
    """
    if inputs.recipe.white_level is not None:
        return inputs
    white_level = find_white_level(inputs.training) if world.is_main else MAX_WHITE
    return inputs.with_white_level(world.broadcast(white_level))


def find_white_level(images: ImageDirectory) -> int:
    """Return the highest value of as many bits, 8 to 16, as a sample's 16-bit images use."""

    def is_deep(path: Path) -> bool:
        with suppress(UnreadableImageError):  # training reports it
            return decoding.has_16_bits(path)
        return False

    sample = evenly_spaced(len(images), MAX_DEEP_IMAGES).tolist()
    deep = [path for path in map(images.path, sample) if is_deep(path)]
    if not deep:
        return MAX_WHITE
    with closing(Decoders()) as decoders, ThreadPoolExecutor(usable_cores()) as pool:

        def highest_of(path: Path) -> int:
            with suppress(UnreadableImageError):
                pixels = decoders.prepare_one(highest_value_as_pixel, ImageRequest(os.fspath(path)))
                return int(pixels[0, 0, 0]) * 256 + int(pixels[0, 0, 1])
            return 0

        highest = max(pool.map(highest_of, deep))
    if highest == 0:
        return MAX_WHITE
    bits = max(MIN_BITS, highest.bit_length())
    return (1 << bits) - 1
