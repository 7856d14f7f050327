"""Which images of a directory belong together: twins, rows of one file, and names that agree as the
user says.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import repeats_in
from train_pytorch_model.formats.writing import in_order
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.machine.console import progress_bar
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.quality.identical_files import identical_pairs
from train_pytorch_model.quality.near_duplicates import find_pairs
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES, perceptual_hash

PARENT = "parent"
NONE = "none"
HASHED_SIDE = 64  # px: a JPEG is decoded at an eighth of its size, in a third of the time


@dataclass(frozen=True)
class Groups:
    """Which images stay together."""

    labels: np.ndarray
    """(N,), int64: for each image, the index of the first image of its group."""
    num_twins: int = 0
    """How many images look like an earlier one."""
    num_named: int = 0
    """How many groups have a name; 0 if names do not matter."""
    num_unmatched: int = 0
    """How many names the expression does not match; each such image is a group by itself."""


def group_images(images: ImageDirectory, group_by: str = "", by_twins: bool = True) -> Groups:
    """Group the rows of each file, twins, and what has the same name by `group_by`.

    That is `parent`, for the folder in which an image was before it was converted; or a regular
    expression, whose groups, or whole match if it has none, in that name count; or `none`, which
    groups nothing but the rows of each file. Raises `ParameterError` for an invalid one.
    """
    if group_by == NONE:
        group_by, by_twins = "", False
    links = [_links(images.file_names)]
    names = [""] * len(images)
    if group_by:
        names = _group_names(images, group_by)
        matched = np.flatnonzero([bool(name) for name in names])
        links.append(matched[_links([names[index] for index in matched.tolist()])])
    twins = find_looking_alike(images) if by_twins else np.empty((0, 2), np.int64)
    links.append(twins)
    return Groups(
        labels=connect(len(images), np.concatenate(links)),
        num_twins=len(np.unique(twins[:, 1])),
        num_named=len(set(filter(None, names))),
        num_unmatched=names.count("") if group_by else 0,
    )


def connect(count: int, links: np.ndarray) -> np.ndarray:
    """Return (count,), int64: the lowest index to which each is connected by the links (L, 2)."""
    if len(links) == 0:
        return np.arange(count)
    # Here, because they take a fifth of a second, and every verb imports this module.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    is_linked = np.ones(len(links), dtype=bool)
    graph = coo_array((is_linked, (links[:, 0], links[:, 1])), shape=(count, count))
    _, components = connected_components(graph, directed=False)
    _, firsts = np.unique(components, return_index=True)
    labels: np.ndarray = firsts[components]
    return labels


def group_across(
    directories: Sequence[ImageDirectory], hashes: np.ndarray, group_by: str = ""
) -> np.ndarray:
    """Return (N,), int64: for each image of all directories, the first image of its group.

    Images are numbered on from directory to directory, and have perceptual `hashes` (N, 16). They
    are grouped as by `group_images`. Raises `ParameterError` for an invalid expression.
    """
    by_twins = group_by != NONE
    files = [name for images in directories for name in _files_of(images)]
    links = [_links(files)]
    if group_by and by_twins:
        names = [name for images in directories for name in _group_names(images, group_by)]
        matched = np.flatnonzero([bool(name) for name in names])
        links.append(matched[_links([names[index] for index in matched.tolist()])])
    if by_twins:
        links.append(_looking_alike(hashes, [Path(file) for file in files]))
    return connect(len(files), np.concatenate(links))


def _files_of(images: ImageDirectory) -> list[str]:
    return [str(images.path(index)) for index in range(len(images))]


def find_looking_alike(images: ImageDirectory) -> np.ndarray:
    """Return the pairs of images that look alike, or whose files are identical.

    (P, 2), int64; the two indices of a row are ascending.
    """
    files = [Path(file) for file in _files_of(images)]
    return _looking_alike(hashes_of_files(files), files)


def hashes_of_files(files: Sequence[Path]) -> np.ndarray:
    """Return the perceptual hashes (N, 16), uint8; zeros of what cannot be read."""

    def hash_of(file: Path) -> np.ndarray:
        try:
            return perceptual_hash(decoders.decode(file, HASHED_SIDE))
        except UnreadableImageError:  # training reports it
            return np.zeros(NUM_BYTES, np.uint8)

    hashes = np.empty((len(files), NUM_BYTES), np.uint8)
    with (
        closing(Decoders()) as decoders,
        in_order(hash_of, files, usable_cores()) as hashed,
        progress_bar(len(files), "Comparing") as bar,
    ):
        for index, image_hash in enumerate(hashed):
            hashes[index] = image_hash
            bar.advance()
    return hashes


def _looking_alike(hashes: np.ndarray, files: Sequence[Path]) -> np.ndarray:
    """Return the pairs (P, 2) of images with similar hashes (N, 16), or identical files."""
    unhashed = np.flatnonzero(~hashes.any(axis=1))  # their files can still be identical
    identical = identical_pairs([files[index] for index in unhashed.tolist()])
    return np.concatenate([find_pairs(hashes).images, unhashed[identical]])


def _links(names: Sequence[str]) -> np.ndarray:
    """Return a link for each name that has occurred before: the first one's index and its own.

    (L, 2), int64.
    """
    hashes = np.fromiter(map(hash, names), dtype=np.int64, count=len(names))
    again, firsts = repeats_in(hashes)
    return np.stack([firsts, again], axis=1)


def _group_names(images: ImageDirectory, group_by: str) -> list[str]:
    """Return the name of each image's group; empty if the expression does not match."""
    originals = images.original_names(np.arange(len(images)))
    names = [original or name for original, name in zip(originals, images.file_names, strict=True)]
    if group_by == PARENT:
        return [str(PurePosixPath(name).parent) for name in names]
    try:
        expression = re.compile(group_by)
    except re.error as error:
        raise ParameterError(
            f"{parameter('group_by')} {group_by!r} is not a regular expression: {error}."
        ) from error
    return [_matched_part(expression.search(name)) for name in names]


def _matched_part(match: re.Match[str] | None) -> str:
    """Return the groups of a match, or all of it if it has none; empty if nothing has matched."""
    if match is None:
        return ""
    groups = match.groups()
    if not groups:
        return match[0]
    return "\0".join(group or "" for group in groups) if any(groups) else ""
