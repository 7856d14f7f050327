"""Whether images are distinguishable from their mirror images: if so, training does not mirror them.

Digits, text, signs and X-rays have a left and a right; most photographs do not. A linear classifier on
thumbnails decides, as in visual chirality (Lin, Sun, Davis and Snavely, CVPR 2020). Of 256 images, it
distinguishes 89 to 98 % of handwritten digits, 74 to 89 % of clothes, whose shoes all point one way, and
43 to 57 % of CIFAR-10 images.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from train_pytorch_model.data.loader import start_decoders
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import Colours, UnreadableImageError
from train_pytorch_model.image_classifier.pixels import Decode, Pixels, resize
from train_pytorch_model.inputs.opening import OpenedInputs, TrainingInputs

MAX_IMAGES = 256  # sampled: 0.4 s for photographs of 500 x 375 px on two cores
MAX_CATEGORIES = 8  # evenly spaced: 8 categories of 32 images are more conclusive than 64 of 4
MIN_IMAGES = 16  # of a category; smaller ones are pooled
SIDE = 16  # px of a thumbnail
FOLDS = 5
MIN_DISTINGUISHABLE = 0.65  # minimum fraction of images distinguished, and …
DEVIATIONS = 4.0  # … standard deviations above chance, which is half


def decide_flips(inputs: OpenedInputs, world: World) -> TrainingInputs:
    """The inputs with a complete recipe: pixels decide about flips if it leaves them open.

    The same on all processes.
    """
    if isinstance(inputs.recipe.horizontal_flip, bool):
        return inputs.with_flips(inputs.recipe.horizontal_flip)
    some = count = 0
    if world.is_main:
        some, count = count_distinguishable(inputs.training, inputs.framing.colours, world)
    some, count = world.broadcast((some, count))
    has_sides = some > count * MIN_DISTINGUISHABLE and some > count / 2 + DEVIATIONS * math.sqrt(count) / 2
    reason = f"{some} of {count} images are distinguishable from their mirror images" if has_sides else ""
    return inputs.with_flips(not has_sides, reason)


def count_classified(thumbnails: np.ndarray) -> int:
    """How many of these images a linear classifier, trained on the others, tells from their mirror images.

    `thumbnails`: (N, S, S), float, brightness. The classifier is Fisher's linear discriminant between images
    and mirror images, ridge-regularized and cross-validated; an image that equals its mirror image does not
    count. Importing scikit-learn's would take longer than the whole test.
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
        # The class means are +mean and -mean, with a shared scatter matrix; the ridge is its mean variance.
        scatter = known.T @ known / len(known)
        ridge = np.trace(scatter) / len(scatter)
        direction = np.linalg.solve(scatter + ridge * np.eye(len(scatter)), known.mean(axis=0))
        distinguished += int(np.count_nonzero(others @ direction > 0))
    return distinguished


def count_distinguishable(images: ImageDirectory, colours: Colours, world: World) -> tuple[int, int]:
    """How many images of a fixed sample are told from their mirror images, and the size of the sample."""
    with start_decoders(world) as decoders, ThreadPoolExecutor(world.cores) as pool:
        groups = [
            [
                thumbnail
                for thumbnail in pool.map(lambda path: _thumbnail(path, colours, decoders.decode), paths)
                if thumbnail is not None
            ]
            for paths in _sample(images)
        ]
    large = [group for group in groups if len(group) >= MIN_IMAGES]
    rest = [thumbnail for group in groups if len(group) < MIN_IMAGES for thumbnail in group]
    some = sum(count_classified(np.stack(group)) for group in (*large, rest) if group)
    return some, sum(len(group) for group in groups)


def _sample(images: ImageDirectory) -> Iterator[list[Path]]:
    """Paths of some images, for each of some categories."""
    present = np.flatnonzero(images.class_counts())
    for index in present[evenly_spaced(len(present), MAX_CATEGORIES)]:
        of_category = np.flatnonzero(images.class_indices == index)
        some = evenly_spaced(len(of_category), MAX_IMAGES // min(MAX_CATEGORIES, len(present)))
        yield [images.path(int(image)) for image in of_category[some]]


def _thumbnail(path: Path, colours: Colours, decode: Decode) -> np.ndarray | None:
    """(SIDE, SIDE), float64, brightness; None for an image that cannot be read."""
    try:
        pixels: Pixels = decode(path, SIDE, colours)
    except UnreadableImageError:  # training reports it
        return None
    thumbnail: np.ndarray = resize(pixels, SIDE, SIDE).mean(axis=2)
    return thumbnail
