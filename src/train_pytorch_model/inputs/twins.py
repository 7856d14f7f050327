"""Twins: files that are in both data sets of a run, or twice in one, found before anything is trained."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.reading import MalformedFileError, read_bounded, sha256_of
from train_pytorch_model.inputs.perceptual_hash import MAX_HASHED, NUM_BYTES
from train_pytorch_model.machine.cores import usable_cores

IMAGE_HASHES = "image_hashes.bin"
"""In a trained directory: the perceptual hashes of the training images, one after the other."""

MAX_COMPARED = 20_000  # files of a data set; a larger one is represented by an evenly spaced sample
HEAD_BYTES = 4096  # enough to tell photographs apart that happen to have the same size
MAX_HASHED_BYTES = 1 << 30  # a second or two
FILES_AT_ONCE = 100  # read by one thread


@dataclass(frozen=True)
class IdenticalFiles:
    """Pairs of byte-identical files in the data sets of a run."""

    pairs: np.ndarray
    """(P, 2), int64: the first of identical files and each other one. Validation images are numbered on after
    the training images, so that the first one is a training image if any is."""
    num_training: int
    num_validation: int
    is_sample: bool
    """Whether not all files were compared."""

    @property
    def shared(self) -> int:
        """The number of validation images that are also training images."""
        first, other = self.pairs.T
        return int(np.count_nonzero((first < self.num_training) & (other >= self.num_training)))


def find_identical(training: ImageDirectory, validation: ImageDirectory) -> IdenticalFiles:
    """Compare the files of both, or of a fixed sample of each."""
    directories = ((training, 0), (validation, len(training)))
    samples = [
        (directory, first, evenly_spaced(len(directory), MAX_COMPARED)) for directory, first in directories
    ]
    files = [directory.path(index) for directory, _, sample in samples for index in sample.tolist()]
    numbers = np.concatenate([first + sample for _, first, sample in samples])
    pairs = [(group[0], other) for group in identical_files(files) for other in group[1:]]
    return IdenticalFiles(
        pairs=numbers[np.array(pairs, np.int64).reshape(-1, 2)],
        num_training=len(training),
        num_validation=len(validation),
        is_sample=len(files) < len(training) + len(validation),
    )


def read_image_hashes(model: Path) -> np.ndarray:
    """Return the hashes (N, 16), uint8, of the images that a model was trained on; none if it has none."""
    try:
        content = read_bounded(model / IMAGE_HASHES, MAX_HASHED * NUM_BYTES)
    except MalformedFileError:  # another program's model, or too many images
        content = b""
    whole = len(content) // NUM_BYTES * NUM_BYTES
    return np.frombuffer(content[:whole], np.uint8).reshape(-1, NUM_BYTES)


def identical_files(files: Sequence[Path]) -> list[list[int]]:
    """Return groups of byte-identical files, as ascending indices.

    Files of one size are compared by their beginnings, and then by their sha256, the smallest first and up to
    `MAX_HASHED_BYTES` in all. What cannot be read is in no group: training reports it.
    """
    sizes: dict[int, int] = {}

    def size_of(index: int) -> Hashable:
        sizes[index] = files[index].stat().st_size
        return sizes[index]

    def head_of(index: int) -> Hashable:
        with files[index].open("rb") as file:
            return hashlib.sha256(file.read(HEAD_BYTES)).digest()

    with ThreadPoolExecutor(usable_cores()) as pool:
        same_size = _regroup([list(range(len(files)))], size_of, pool)
        same_head = _regroup(same_size, head_of, pool)
        whole = [group for group in same_head if sizes[group[0]] <= HEAD_BYTES]
        larger = [group for group in same_head if sizes[group[0]] > HEAD_BYTES]
        larger.sort(key=lambda group: sizes[group[0]])
        num_bytes = np.cumsum([len(group) * sizes[group[0]] for group in larger])
        affordable = larger[: int(np.searchsorted(num_bytes, MAX_HASHED_BYTES, side="right"))]
        return whole + _regroup(affordable, lambda index: sha256_of(files[index]), pool)


def _regroup(
    groups: Sequence[list[int]], key: Callable[[int], Hashable], pool: ThreadPoolExecutor
) -> list[list[int]]:
    """Divide groups of files by a key of each, leaving out those that are alone or cannot be read."""

    def keys_of(task: Sequence[tuple[int, int]]) -> list[Hashable]:
        return [_readable(key, index) for _, index in task]

    members = [(number, index) for number, group in enumerate(groups) for index in group]
    tasks = [members[start : start + FILES_AT_ONCE] for start in range(0, len(members), FILES_AT_ONCE)]
    divided: defaultdict[Hashable, list[int]] = defaultdict(list)
    for task, keys in zip(tasks, pool.map(keys_of, tasks), strict=True):
        for (number, index), value in zip(task, keys, strict=True):
            if value is not None:
                divided[number, value].append(index)
    return [group for group in divided.values() if len(group) > 1]


def _readable(key: Callable[[int], Hashable], index: int) -> Hashable | None:
    try:
        return key(index)
    except OSError:
        return None
