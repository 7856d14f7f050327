"""Pairs of images that look alike, found by their perceptual hashes.

Hashes that differ in few bits share some of their bytes, and so are found in buckets: those of a
bucket share two or three bytes, and only they are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.quality.perceptual_hash import MIRRORED_BITS

# Copies of photographs differ in 0 to 4 bits at JPEG quality 60 or at half the size, in 12 (99 %:
# 21) when cropped by 2 % on each side; CIFAR images of 32 px in up to 8. Unrelated photographs
# differ in 35 or more.
MAX_DISTANCE = 20
# Below the median distance: unrelated images of little variety, such as digits, are closer.
DEVIATIONS = 6.5
QUARTILE = 0.6745  # of a normal distribution, in standard deviations
MAX_SKEW = 1.3  # of the lower half of the distances
MIN_SAMPLED = 20  # of fewer, copies would count as variety
SAMPLED = 1000  # images whose distances to each other show their variety
NUM_BANDS = 8  # the first bytes; a bucket shares two or three of them
MANY = 200_000  # images, from which on sharing two bytes is too common
# Compared, 10 s on one core; beyond, large buckets are not searched to their end.
MAX_PAIRS = 300_000_000
INDEX_BITS = 32  # of a bucket's key and an index in one number
KEY_BITS = 24


@dataclass(frozen=True)
class Pairs:
    """P pairs of images that look alike."""

    images: np.ndarray  # (P, 2), int64: indices of the images, ascending in each row
    distances: np.ndarray  # (P,), int64: bits in which their hashes differ
    is_mirrored: np.ndarray  # (P,), bool: whether one looks like the mirror image of the other


def find_pairs(hashes: np.ndarray, num_known: int = 0) -> Pairs:
    """Return pairs of the images with `hashes` (N, 16), uint8; rows of zeros are no hashes.

    Of images with the same hash, each is paired with the first one, and only the first one with
    others. Pairs within the first `num_known` images are left out.
    """
    words = np.ascontiguousarray(hashes).view(np.uint64)  # (N, 2)
    numbers = np.arange(len(words))
    _, first_of, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
    firsts = first_of[inverse.ravel()]  # (N,): the first image with the same hash
    is_hash = words.any(axis=1)
    is_first = firsts == numbers

    copies = np.flatnonzero(is_hash & ~is_first & (numbers >= num_known))
    identical = Pairs(
        np.stack([firsts[copies], copies], axis=1),
        np.zeros(len(copies), np.int64),
        np.zeros(len(copies), bool),
    )
    distinct = np.flatnonzero(is_hash & is_first)
    near = _find_near(hashes[distinct], int(np.searchsorted(distinct, num_known)))
    return Pairs(
        np.concatenate([identical.images, distinct[near.images]]),
        np.concatenate([identical.distances, near.distances]),
        np.concatenate([identical.is_mirrored, near.is_mirrored]),
    )


def look_like_known(pairs: Pairs, num_known: int, num_images: int) -> np.ndarray:
    """Return (num_images - num_known,), bool: which images look like one of the first `num_known`.

    They are paired with a known image, or are copies of such a one.
    """
    one, other = pairs.images.T
    is_alike = np.zeros(num_images, bool)
    is_alike[other[(one < num_known) & (other >= num_known)]] = True
    is_copy = pairs.distances <= 0  # which are paired with the first of their kind only
    is_alike[other[is_copy]] |= is_alike[one[is_copy]]
    return is_alike[num_known:]


def _find_near(hashes: np.ndarray, num_known: int) -> Pairs:
    """Return the pairs of different hashes (N, 16), each pair by its smaller distance.

    Hashes of a distance up to five always share three of eight bytes, up to six share two; at a
    distance of 12, usual for crops, nine in ten pairs share two.
    """
    count = len(hashes)
    variants = np.concatenate([hashes, hashes ^ MIRRORED_BITS])  # (2 N, 16)
    words = variants.view(np.uint64)  # (2 N, 2)
    limit = _max_distance(words[:count], words[count:])
    bands = list(combinations(range(NUM_BANDS), 2 if count < MANY else 3))
    parts = [np.empty((0, 4), np.int64)]
    for band in bands:
        buckets = _Buckets(_keys_of(variants, band), words[:, 0], num_known)
        for one, other in buckets.pairs(limit, MAX_PAIRS // len(bands)):
            distances = np.bitwise_count(words[one] ^ words[other]).sum(axis=1, dtype=np.int64)
            images = np.sort([one, other % count], axis=0)  # (2, P)
            is_near = (distances <= limit) & (images[0] != images[1])
            is_mirrored = other >= count
            parts.append(np.stack([*images, distances, is_mirrored], axis=1)[is_near])

    rows = np.unique(np.concatenate(parts), axis=0)  # (P, 4), by images, then by distance
    differs = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)  # from the pair before
    is_nearest = np.append(True, differs)[: len(rows)]
    rows = rows[is_nearest]
    return Pairs(rows[:, :2], rows[:, 2], rows[:, 3].astype(bool))


def _keys_of(hashes: np.ndarray, band: tuple[int, ...]) -> np.ndarray:
    """Return (N,), int64: the bytes at the positions of `band`, of each hash, as one number."""
    keys = np.zeros(len(hashes), np.int64)
    for byte in band:
        keys = keys << 8 | hashes[:, byte]
    return keys


class _Buckets:
    """Images and their mirror images by a key, of which equal ones are compared."""

    def __init__(self, keys: np.ndarray, heads: np.ndarray, num_known: int) -> None:
        """Sort by `keys` (2 N,), int64, below 2^24: those of N images, then of their mirror images.

        The `heads` (2 N,), uint64, are the first halves of their hashes. Buckets in which all of
        the images are among the first `num_known` are left out.
        """
        self._num_images = len(keys) // 2
        self._is_new = np.arange(len(keys)) % max(self._num_images, 1) >= num_known  # (2 N,)
        # Sorted as one number, keys and indices take a fraction of the time of argsort.
        keyed = np.sort(keys << INDEX_BITS | np.arange(len(keys)))
        if num_known:
            has_new = np.zeros(1 << KEY_BITS, bool)  # by key
            has_new[keys[self._is_new]] = True
            keyed = keyed[has_new[keyed >> INDEX_BITS]]
        self._order = keyed & ((1 << INDEX_BITS) - 1)  # (K,): indices, by increasing key
        self._keys = keyed >> INDEX_BITS  # (K,)
        self._heads = heads[self._order]  # (K,)

    def pairs(self, limit: int, max_pairs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (one, other), indices of equal keys whose heads differ in at most `limit` bits.

        `one` is no mirror image. At most about `max_pairs` are compared.
        """
        count = len(self._order)
        starts = np.arange(count)
        for step in range(1, count):  # up to the size of the largest bucket
            starts = starts[: np.searchsorted(starts, count - step)]
            starts = starts[self._keys[starts] == self._keys[starts + step]]
            differing_bits = np.bitwise_count(self._heads[starts] ^ self._heads[starts + step])
            near = starts[differing_bits <= limit]
            one = self._order[near]
            other = self._order[near + step]
            is_pair = (one < self._num_images) & (self._is_new[one] | self._is_new[other])
            yield one[is_pair], other[is_pair]
            max_pairs -= len(starts)
            if len(starts) == 0 or max_pairs < 0:
                return


def _max_distance(words: np.ndarray, mirrored: np.ndarray) -> int:
    """Return in how many bits of their hashes two images that look alike differ at most.

    That depends on the variety of the images, from a sample of their words (N, 2), uint64, and of
    the words of their mirror images.
    """
    sample = evenly_spaced(len(words), SAMPLED)
    if len(sample) < MIN_SAMPLED:
        return MAX_DISTANCE
    sampled = words[sample, None]  # (K, 1, 2)
    plain_distances = np.bitwise_count(sampled ^ words[sample]).sum(axis=2)  # (K, K)
    mirrored_distances = np.bitwise_count(sampled ^ mirrored[sample]).sum(axis=2)
    distances = np.minimum(plain_distances, mirrored_distances)
    distances = distances[np.triu_indices(len(sample), 1)]  # each pair once
    median, upper_quartile = np.quantile(distances, [0.5, 0.75])
    # As of a normal distribution, by the lower half, which is what matters and wider for digits;
    # bounded by the upper half, as twins widen the lower one.
    below = (median - distances)[distances <= median]
    deviation = min(
        np.sqrt((below**2).mean()),
        MAX_SKEW * (upper_quartile - median) / QUARTILE,
    )
    return int(np.clip(median - DEVIATIONS * deviation, 0, MAX_DISTANCE))
