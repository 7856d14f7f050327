"""What the pixels of a sample decide: whether training mirrors images, and which value is white in
16 bits.

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
from pathlib import Path

import numpy as np

from train_pytorch_model.data.decoders import Decoders, highest_value_as_pixel
from train_pytorch_model.data.loader import start_decoders
from train_pytorch_model.data.requests import ImageRequest
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.decoding import MAX_WHITE, UnreadableImageError
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
    """The inputs, the same on all processes: pixels decide about flips if the recipe leaves them
    open.
    """
    if isinstance(inputs.recipe.horizontal_flip, bool):
        return inputs.with_flips(inputs.recipe.horizontal_flip)
    some = count = 0
    if world.is_main:
        some, count = count_distinguishable(inputs.training, inputs.framing.colours, world)
    some, count = world.broadcast((some, count))
    has_sides = (
        some > count * MIN_DISTINGUISHABLE and some > count / 2 + DEVIATIONS * math.sqrt(count) / 2
    )
    reason = (
        f"{some} of {count} images are distinguishable from their mirror images"
        if has_sides
        else ""
    )
    return inputs.with_flips(not has_sides, reason)


def count_distinguishable(
    images: ImageDirectory, colours: decoding.Colours, world: World
) -> tuple[int, int]:
    """How many images of a fixed sample are told from their mirror images, and the size of the
    sample.
    """
    groups = []
    present = np.flatnonzero(images.class_counts())
    with start_decoders(world) as decoders, ThreadPoolExecutor(world.cores) as pool:

        def thumbnail(index: int) -> np.ndarray | None:
            with suppress(UnreadableImageError):  # training reports it
                pixels = resize(decoders.decode(images.path(index), SIDE, colours), SIDE, SIDE)
                brightness: np.ndarray = pixels.mean(axis=2)  # (SIDE, SIDE), float64
                return brightness
            return None

        for category in present[evenly_spaced(len(present), MAX_CATEGORIES)]:
            of_category = np.flatnonzero(images.class_indices == category)
            some = evenly_spaced(len(of_category), MAX_IMAGES // min(MAX_CATEGORIES, len(present)))
            found = pool.map(thumbnail, of_category[some].tolist())
            groups.append([each for each in found if each is not None])
    large = [group for group in groups if len(group) >= MIN_IMAGES]
    rest = [each for group in groups if len(group) < MIN_IMAGES for each in group]
    distinguished = sum(count_classified(np.stack(group)) for group in (*large, rest) if group)
    return distinguished, sum(map(len, groups))


def count_classified(thumbnails: np.ndarray) -> int:
    """How many of these images a linear classifier, trained on the others, tells from their mirror
    images.

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
        known, others = sides[fold_of != fold], sides[fold_of == fold]
        if not known.any():
            continue
        # The class means are +mean and -mean, with a shared scatter matrix; the ridge is its mean
        # variance.
        scatter = known.T @ known / len(known)
        ridge = np.trace(scatter) / len(scatter)
        direction = np.linalg.solve(scatter + ridge * np.eye(len(scatter)), known.mean(axis=0))
        distinguished += int(np.count_nonzero(others @ direction > 0))
    return distinguished


def decide_white_level(inputs: OpenedInputs, world: World) -> OpenedInputs:
    """The inputs with a white level: the recipe's, or that of a sample.

    The same on all processes.
    """
    if inputs.recipe.white_level is not None:
        return inputs
    found = find_white_level(inputs.training) if world.is_main else MAX_WHITE
    return inputs.with_white_level(world.broadcast(found))


def find_white_level(images: ImageDirectory) -> int:
    """The highest value of 8 to 16 bits, as many as the 16-bit images of a fixed sample use."""

    def is_deep(path: Path) -> bool:
        with suppress(UnreadableImageError):  # training reports it
            return decoding.has_16_bits(path)
        return False

    deep = list(
        filter(is_deep, map(images.path, evenly_spaced(len(images), MAX_DEEP_IMAGES).tolist()))
    )
    if not deep:
        return MAX_WHITE
    with closing(Decoders()) as decoders, ThreadPoolExecutor(usable_cores()) as pool:

        def highest_of(path: Path) -> int:
            with suppress(UnreadableImageError):
                pixels = decoders.prepare_one(highest_value_as_pixel, ImageRequest(os.fspath(path)))
                return int(pixels[0, 0, 0]) * 256 + int(pixels[0, 0, 1])
            return 0

        highest = max(pool.map(highest_of, deep))
    return (1 << max(MIN_BITS, highest.bit_length())) - 1 if highest else MAX_WHITE
