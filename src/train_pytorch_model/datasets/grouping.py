"""Groups of images that stay in one part of a split: twins, and those that belong together by their names."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import first_rows
from train_pytorch_model.formats.writing import in_order
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.inputs.perceptual_hash import NUM_BYTES, find_pairs, perceptual_hash
from train_pytorch_model.inputs.twins import identical_files
from train_pytorch_model.machine.console import progress_bar
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.words.errors import ParameterError

PARENT = "parent"
HASHED_SIDE = 64  # px: a JPEG is decoded at an eighth of its size, in a third of the time


@dataclass(frozen=True)
class Groups:
    """Which images stay together."""

    labels: np.ndarray
    """(N,), int64: the index of the first image of each image's group."""
    num_twins: int = 0
    """Images that look like an earlier one."""
    num_named: int = 0
    """Groups by name; 0 if names do not matter."""
    num_unmatched: int = 0
    """Images whose names the expression does not match; each is a group by itself."""


def group_images(images: ImageDirectory, group_by: str = "", by_twins: bool = True) -> Groups:
    """Group the rows of each file, twins, and what has the same name by `group_by`.

    That is `parent`, for the folder in which an image was before it was converted, or a regular expression,
    whose groups, or else whole match, in that name count. Raises `ParameterError` for an invalid one.
    """
    links = [_links(images.file_names)]
    names = [""] * len(images)
    if group_by:
        names = _group_names(images, group_by)
        matched = np.flatnonzero([bool(name) for name in names])
        links.append(matched[_links([names[index] for index in matched.tolist()])])
    twins = find_looking_alike(images) if by_twins else np.empty((0, 2), np.int64)
    return Groups(
        labels=connect(len(images), np.concatenate([*links, twins])),
        num_twins=len(np.unique(twins[:, 1])),
        num_named=len(set(filter(None, names))),
        num_unmatched=names.count("") if group_by else 0,
    )


def connect(count: int, links: np.ndarray) -> np.ndarray:
    """Return (count,), int64: the lowest index to which each is connected by the links (L, 2)."""
    labels = np.arange(count)
    one, other = links.T
    while True:
        lowest = np.minimum(labels[one], labels[other])
        lower = labels.copy()
        np.minimum.at(lower, one, lowest)
        np.minimum.at(lower, other, lowest)
        lower = lower[lower]
        if (lower == labels).all():
            return labels
        labels = lower


def find_looking_alike(images: ImageDirectory) -> np.ndarray:
    """Return pairs of images that look alike, or of identical files: (P, 2), int64, ascending in each row."""

    def hash_of(index: int) -> np.ndarray:
        try:
            return perceptual_hash(decoders.decode(images.path(index), HASHED_SIDE))
        except UnreadableImageError:  # training reports it
            return np.zeros(NUM_BYTES, np.uint8)

    hashes = np.empty((len(images), NUM_BYTES), np.uint8)
    with (
        closing(Decoders()) as decoders,
        ThreadPoolExecutor(usable_cores()) as pool,
        progress_bar(len(images), "Comparing") as bar,
    ):
        for index, each in enumerate(in_order(pool, hash_of, range(len(images)))):
            hashes[index] = each
            bar.advance()
    unhashed = np.flatnonzero(~hashes.any(axis=1))  # their files can still be identical
    groups = identical_files([images.path(index) for index in unhashed.tolist()])
    identical = [(unhashed[group[0]], unhashed[other]) for group in groups for other in group[1:]]
    return np.concatenate([find_pairs(hashes).images, np.array(identical, np.int64).reshape(-1, 2)])


def _links(names: Sequence[str]) -> np.ndarray:
    """Return (L, 2), int64: for each name that has occurred before, the first one's index and its own."""
    firsts = first_rows(np.fromiter(map(hash, names), dtype=np.int64, count=len(names)))
    repeated = np.flatnonzero(firsts != np.arange(len(names)))
    return np.stack([firsts[repeated], repeated], axis=1)


def _group_names(images: ImageDirectory, group_by: str) -> list[str]:
    """Return the name of each image's group; empty if the expression does not match."""
    originals = images.original_names(np.arange(len(images)))
    names = [original or name for original, name in zip(originals, images.file_names, strict=True)]
    if group_by == PARENT:
        return [str(PurePosixPath(name).parent) for name in names]
    try:
        expression = re.compile(group_by)
    except re.error as error:
        raise ParameterError(f"--group-by {group_by!r} is not a regular expression: {error}.") from error
    matches = (expression.search(name) for name in names)
    return [
        "\0".join(each or "" for each in match.groups()) or match[0] if match else "" for match in matches
    ]
