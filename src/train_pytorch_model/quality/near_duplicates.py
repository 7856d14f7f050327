"""Twins: files that are in both data sets of a run, or twice in one, and images that look alike.

Images that look alike have perceptual hashes that differ in few bits, and so are found in buckets.
A hash holds the signs of the 128 lowest frequencies of an image's brightness, of its discrete
cosine transform, as in pHash (Zauner 2010), the lowest first. Re-encoding, resizing and other
brightness change few signs; mirroring changes those of all odd horizontal frequencies, which are
known, so that it needs no second hash. `tests/benchmarks/data_quality` measures what follows from
that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.reading import MalformedFileError, read_bounded

IMAGE_HASHES = "image_hashes.bin"  # perceptual hashes of the training images, one after the other

NUM_BYTES = 16
MAX_HASHED = 2_000_000  # images of a run; of more, there are no hashes
SIDE = 32  # px of the thumbnail that is transformed
SAMPLED_SIDE = (
    96  # px, at least, of the short side from which it is made: more costs time and adds nothing
)
MIN_CONTRAST = 2.0  # standard deviation of the thumbnail's brightness; below, the signs are noise
# Copies of photographs differ in 0 to 4 bits at JPEG quality 60 or at half the size, in 12 (99 %:
# 21) when cropped by 2 % on each side; CIFAR images of 32 px in up to 8. Unrelated photographs
# differ in 35 or more.
MAX_DISTANCE = 20
DEVIATIONS = (
    6.5  # below the median distance: unrelated images of little variety, such as digits, are closer
)
MAX_SKEW = 1.3  # of the lower half of the distances
MIN_SAMPLED = 20  # of fewer, copies would count as variety
SAMPLED = 1000  # images whose distances to each other show their variety
NUM_BANDS = 8  # the first bytes; a bucket shares two or three of them
MANY = 200_000  # images, from which on sharing two bytes is too common
MAX_PAIRS = (
    300_000_000  # compared, 10 s on one core; beyond, large buckets are not searched to their end
)

_POSITIONS = np.arange(SIDE)
_WAVES = np.cos(np.pi * np.outer(_POSITIONS, 2 * _POSITIONS + 1) / (2 * SIDE)).astype(np.float32)
_FREQUENCIES = sorted(
    ((row, column) for row in range(SIDE) for column in range(SIDE) if row + column > 0),
    key=lambda frequency: (sum(frequency), frequency),
)[: 8 * NUM_BYTES]
_ROWS, _COLUMNS = np.array(_FREQUENCIES).T
_WAVES = _WAVES[: 1 + max(_ROWS.max(), _COLUMNS.max())]  # no higher one is used
_MIRROR = np.packbits(_COLUMNS % 2)  # (16,), uint8: the bits that mirroring inverts


def read_image_hashes(model: Path) -> np.ndarray:
    """Return the hashes (N, 16), uint8, of the images that a model was trained on; none if it has
    none.
    """
    try:
        content = read_bounded(model / IMAGE_HASHES, MAX_HASHED * NUM_BYTES)
    except MalformedFileError:  # another program's model, or too many images
        content = b""
    whole = len(content) // NUM_BYTES * NUM_BYTES
    return np.frombuffer(content[:whole], np.uint8).reshape(-1, NUM_BYTES)


@dataclass(frozen=True)
class Pairs:
    """P pairs of images that look alike."""

    images: np.ndarray  # (P, 2), int64: indices of the images, ascending in each row
    distances: np.ndarray  # (P,), int64: bits in which their hashes differ
    is_mirrored: np.ndarray  # (P,), bool: whether one looks like the mirror image of the other


def perceptual_hash(pixels: np.ndarray) -> np.ndarray:
    """Return the hash (16,), uint8, of an RGB image (H, W, 3), uint8; zeros if it shows next to
    nothing.
    """
    rows = pixels[
        :: max(1, min(pixels.shape[:2]) // SAMPLED_SIDE)
    ]  # leaving out columns costs more time
    grey = Image.fromarray(rows).convert("L")
    thumbnail = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32)
    if thumbnail.std() < MIN_CONTRAST:
        return np.zeros(NUM_BYTES, np.uint8)
    strengths = (_WAVES @ thumbnail @ _WAVES.T)[_ROWS, _COLUMNS]
    return np.packbits(
        strengths > 1e-2
    )  # symmetric images have frequencies of strength 0, up to rounding


def find_pairs(hashes: np.ndarray, num_known: int = 0) -> Pairs:
    """Return pairs of the images with `hashes` (N, 16), uint8; rows of zeros are no hashes.

    Of images with the same hash, each is paired with the first one, and only the first one with
    others. Pairs within the first `num_known` images are left out.
    """
    words = np.ascontiguousarray(hashes).view(np.uint64)  # (N, 2)
    _, places, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
    firsts = places[inverse.ravel()]
    is_hash, is_first = words.any(axis=1), firsts == np.arange(len(words))
    copies = np.flatnonzero(is_hash & ~is_first & (np.arange(len(words)) >= num_known))
    distinct = np.flatnonzero(is_hash & is_first)
    near, distances, is_mirrored = _find_near(
        hashes[distinct], int(np.searchsorted(distinct, num_known))
    )
    return Pairs(
        np.concatenate([np.stack([firsts[copies], copies], axis=1), distinct[near]]),
        np.concatenate([np.zeros(len(copies), np.int64), distances]),
        np.concatenate([np.zeros(len(copies), bool), is_mirrored]),
    )


def _find_near(hashes: np.ndarray, num_known: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs (P, 2) of different hashes (N, 16), their distances (P,), and what is mirrored
    (P,), bool.

    Hashes of a distance up to five always share three of eight bytes, up to six share two; at a
    distance of 12, usual for crops, nine in ten pairs share two.
    """
    count = len(hashes)
    variants = np.concatenate([hashes, hashes ^ _MIRROR])  # (2 N, 16)
    words = variants.view(np.uint64)  # (2 N, 2)
    limit = _max_distance(words[:count], words[count:])
    bands = list(combinations(range(NUM_BANDS), 2 if count < MANY else 3))
    found = [np.empty((0, 4), np.int64)]
    for band in bands:
        keys = np.zeros(2 * count, np.int64)
        for byte in band:
            keys = keys << 8 | variants[:, byte]
        for one, other in _pairs_in_buckets(
            keys, words[:, 0], limit, num_known, MAX_PAIRS // len(bands)
        ):
            distances = np.bitwise_count(words[one] ^ words[other]).sum(axis=1, dtype=np.int64)
            images = np.sort([one, other % count], axis=0)
            rows = np.stack([*images, distances, other >= count], axis=1)
            found.append(rows[(distances <= limit) & (images[0] != images[1])])
    rows = np.unique(np.concatenate(found), axis=0)  # by images, then by distance
    is_new = np.append(True, (rows[1:, :2] != rows[:-1, :2]).any(axis=1))[: len(rows)]
    rows = rows[is_new]
    return rows[:, :2], rows[:, 2], rows[:, 3].astype(bool)


def _pairs_in_buckets(
    keys: np.ndarray, heads: np.ndarray, limit: int, num_known: int, max_pairs: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (one, other), indices of equal keys whose `heads` differ in at most `limit` bits.

    The keys (2 N,), int64, below 2^24, and heads (2 N,), uint64, the first halves of the hashes,
    are those of N images and of their mirror images; `one` is no mirror image. At most about
    `max_pairs` are compared.
    """
    count = len(keys) // 2
    is_searched = np.arange(len(keys)) % max(count, 1) >= num_known
    # Sorted as one number, keys and indices take a fraction of the time of argsort.
    ordered = np.sort(keys << 32 | np.arange(len(keys)))
    if num_known:
        is_wanted = np.zeros(1 << 24, bool)
        is_wanted[keys[is_searched]] = True
        ordered = ordered[is_wanted[ordered >> 32]]
    order, ordered = ordered & 0xFFFFFFFF, ordered >> 32
    heads, places = heads[order], np.arange(len(order))
    for step in range(1, len(order)):  # up to the size of the largest bucket
        places = places[: np.searchsorted(places, len(order) - step)]
        places = places[ordered[places] == ordered[places + step]]
        near = places[np.bitwise_count(heads[places] ^ heads[places + step]) <= limit]
        one, other = order[near], order[near + step]
        is_pair = (one < count) & (is_searched[one] | is_searched[other])
        yield one[is_pair], other[is_pair]
        max_pairs -= len(places)
        if len(places) == 0 or max_pairs < 0:
            return


def _max_distance(words: np.ndarray, mirrored: np.ndarray) -> int:
    """Return how many bits of twins differ at most, from the words (N, 2), uint64, of a sample of
    images.
    """
    sample = evenly_spaced(len(words), SAMPLED)
    if len(sample) < MIN_SAMPLED:
        return MAX_DISTANCE
    distances = np.minimum(
        *(
            np.bitwise_count(words[sample, None] ^ other[sample]).sum(axis=2)
            for other in (words, mirrored)
        )
    )
    distances = distances[np.triu_indices(len(sample), 1)]
    median, most = np.quantile(distances, [0.5, 0.75])
    # As of a normal distribution, by the lower half, which is what matters and wider for digits;
    # bounded by the upper half, as twins widen the lower one.
    below = (median - distances)[distances <= median]
    deviation = min(np.sqrt((below**2).mean()), MAX_SKEW * (most - median) / 0.6745)
    return int(np.clip(median - DEVIATIONS * deviation, 0, MAX_DISTANCE))
