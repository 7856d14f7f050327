"""Files that are identical byte by byte."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.reading import sha256_of
from train_pytorch_model.machine.cores import in_threads

MAX_COMPARED = 20_000  # files of a data set; a larger one is represented by an evenly spaced sample
HEAD_BYTES = 4096  # enough to tell photographs apart that happen to have the same size
MAX_HASHED_BYTES = 1 << 30  # a second or two


@dataclass(frozen=True)
class IdenticalFiles:
    """Pairs of byte-identical files in the data sets of a run."""

    pairs: np.ndarray
    """(P, 2), int64: the first of identical files and each other one. Validation images are
    numbered on after the training images, so that the first one is a training image if any is."""
    num_training: int
    is_sample: bool  # whether not all files were compared

    @property
    def shared(self) -> int:
        """Return the number of validation images that are also training images."""
        first, other = self.pairs.T
        return int(np.count_nonzero((first < self.num_training) & (other >= self.num_training)))


def find_identical(training: ImageDirectory, validation: ImageDirectory) -> IdenticalFiles:
    """Compare the files of both, or of a fixed sample of each."""
    from_training = evenly_spaced(len(training), MAX_COMPARED)
    from_validation = evenly_spaced(len(validation), MAX_COMPARED)
    files = [training.path(index) for index in from_training.tolist()]
    files += [validation.path(index) for index in from_validation.tolist()]
    numbers = np.concatenate([from_training, len(training) + from_validation])
    is_sample = len(files) < len(training) + len(validation)
    return IdenticalFiles(numbers[identical_pairs(files)], len(training), is_sample)


def identical_pairs(files: Sequence[Path]) -> np.ndarray:
    """Return (P, 2), int64: the indices of the first of byte-identical files and of each other one.

    Files of one size are compared by their beginnings, and then by their sha256, the smallest first
    and up to `MAX_HASHED_BYTES` in all. What cannot be read is in no pair: training reports it.
    """
    sizes: dict[int, int] = {}

    def size_of(index: int) -> int:
        sizes[index] = files[index].stat().st_size
        return sizes[index]

    def head_of(index: int) -> bytes:
        with files[index].open("rb") as file:
            return hashlib.sha256(file.read(HEAD_BYTES)).digest()

    def content_of(index: int) -> str:
        return sha256_of(files[index])

    same_size = _regroup([list(range(len(files)))], size_of)
    same_head = _regroup(same_size, head_of)
    same_content = [group for group in same_head if sizes[group[0]] <= HEAD_BYTES]
    larger = [group for group in same_head if sizes[group[0]] > HEAD_BYTES]
    larger.sort(key=lambda group: sizes[group[0]])
    num_bytes = np.cumsum([len(group) * sizes[group[0]] for group in larger])
    num_affordable = int(np.searchsorted(num_bytes, MAX_HASHED_BYTES, side="right"))
    same_content += _regroup(larger[:num_affordable], content_of)
    pairs = [(group[0], other) for group in same_content for other in group[1:]]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _regroup(groups: Sequence[list[int]], key: Callable[[int], Hashable]) -> list[list[int]]:
    """Divide groups of files by a key of each; what is alone then, or cannot be read, goes."""

    def readable_key(index: int) -> Hashable | None:
        with suppress(OSError):
            return key(index)
        return None

    members = [(number, index) for number, group in enumerate(groups) for index in group]
    keys = in_threads(readable_key, [index for _, index in members])
    divided: defaultdict[Hashable, list[int]] = defaultdict(list)
    for (number, index), value in zip(members, keys, strict=True):
        if value is not None:
            divided[number, value].append(index)
    return [group for group in divided.values() if len(group) > 1]
