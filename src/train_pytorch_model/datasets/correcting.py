"""The images of a data set as a `corrections.csv` says, without touching a file.

An image gets another category, is left out, or stays as it is; one without a category, which is
beside those of the data set or beside the table, joins the training images. A row counts for the
content that was decided on: one whose file is gone, or has another content, is told instead.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.config.wording import bulleted, counted, parameter
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.corrections import (
    DISCARDED,
    Correction,
    corrections_csv,
    read_corrections,
)
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import (
    SUFFIXES,
    UNLABELLED,
    Packer,
    comparable,
    natural_order,
    suffix_of,
)
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.part_names import TRAINING
from train_pytorch_model.formats.reading import (
    META,
    MalformedFileError,
    is_inner_path,
    is_really_inside,
    sha256_of,
)
from train_pytorch_model.inputs.category_names import spelled_alike
from train_pytorch_model.inputs.refuse_lists import refuse_lists
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.cores import in_threads

HINT = "Name the file that the page of `review` has saved, or a table of files and decisions."
# Which part each image without a category joins that has got one: (joining, parts) → the names of
# the parts.
Placement = Callable[[ImageDirectory, Mapping[str, ImageDirectory]], Sequence[str]]


@dataclass(frozen=True)
class Corrections:
    """The decisions of a table."""

    path: Path
    rows: Sequence[Correction]

    @property
    def text(self) -> str:
        """Return the table as this program writes it."""
        return corrections_csv(self.rows)


@dataclass
class _Outcome:
    """What became of the rows."""

    counts: Counter[str] = field(default_factory=Counter)
    gone: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    not_listed: list[str] = field(default_factory=list)
    without_training: list[str] = field(default_factory=list)  # categories


@dataclass(frozen=True)
class _Found:
    """A decision whose image is here, with the content that was decided on."""

    correction: Correction
    part: str  # empty for an image that is in none
    index: int  # in that part
    path: Path


def open_corrections(path: Path | None) -> Corrections | None:
    """Read a table of decisions, if one is named. Raises `InvalidDatasetError`."""
    if path is None:
        return None
    title = f'{parameter("corrections")} "{path}"'
    if not os.path.isfile(path):
        reason = explain_missing(path, "file")
        if os.path.isdir(path):
            reason = "it is a directory, not a file."
        raise InvalidDatasetError(title, reason, HINT)
    try:
        return Corrections(path, read_corrections(path))
    except MalformedFileError as error:
        raise InvalidDatasetError(title, str(error), HINT) from error


def join_training(joining: ImageDirectory, _: Mapping[str, ImageDirectory]) -> Sequence[str]:
    """Return that all images are for training."""
    return [TRAINING] * len(joining)


def correct(
    folder: Path,
    parts: Mapping[str, ImageDirectory],
    corrections: Corrections,
    place: Placement = join_training,
) -> dict[str, ImageDirectory]:
    """Return the parts of a data set, training among them, with all decisions; log what changed.

    The names of corrected files are relative to `folder`. Images that still have no category are
    left out. Raises `InvalidDatasetError` if a part has none left.
    """
    _check_one_category_each(parts, corrections)
    outcome = _Outcome()
    found = list(_find(folder, parts, corrections, outcome))
    categories, index_of = _categories(parts, found)
    corrected = {
        part: _decide(
            images, categories, index_of, [one for one in found if one.part == part], outcome
        )
        for part, images in parts.items()
    }
    joining = [one for one in found if not one.part and one.correction.category is not None]
    if joining:
        corrected = _join(corrected, joining, index_of, place)
        outcome.counts["joined"] += len(joining)
    corrected = _without_empty(corrected, outcome)
    _log(corrections, outcome)
    for part, images in corrected.items():
        if not len(images):
            reason = f"{corrections.path.name} leaves no image with a category for {part}."
            raise InvalidDatasetError(parts[part].title, reason)
    return corrected


def _check_one_category_each(parts: Mapping[str, ImageDirectory], corrections: Corrections) -> None:
    """Raise `InvalidDatasetError` for images with any number of categories."""
    error = InvalidDatasetError(
        parts[TRAINING].title,
        f"its images have any number of categories, and {corrections.path.name} gives each"
        " image one.",
        f"Correct the table of the images instead, and leave out {parameter('corrections')}.",
    )
    for images in parts.values():
        refuse_lists(images.labels, error)


def _find(
    folder: Path,
    parts: Mapping[str, ImageDirectory],
    corrections: Corrections,
    outcome: _Outcome,
) -> Iterator[_Found]:
    """Yield the decisions whose images are here and have the same content."""
    wanted = {_key(row.file) for row in corrections.rows}
    places = _places_of(folder, parts, wanted)
    candidates = []
    for row in corrections.rows:
        at = places.get(_key(row.file))
        if at is not None:
            part, index = at
            candidates.append(_Found(row, part, index, parts[part].path(index)))
            continue
        path = _unlisted(row.file, [folder, parts[TRAINING].root, corrections.path.parent])
        if path is None:
            outcome.gone.append(row.file)
        elif os.path.exists(parts[TRAINING].root / META):
            outcome.not_listed.append(row.file)
        else:
            candidates.append(_Found(row, "", 0, path))
    for candidate, is_same in zip(candidates, in_threads(_is_same, candidates), strict=True):
        if is_same:
            yield candidate
        else:
            outcome.differing.append(candidate.correction.file)


def _places_of(
    folder: Path, parts: Mapping[str, ImageDirectory], wanted: set[str]
) -> dict[str, tuple[str, int]]:
    """Return the part and the index of each image that is wanted, by its key."""
    places: dict[str, tuple[str, int]] = {}
    for part, images in parts.items():
        prefix = os.path.relpath(images.root, folder).replace(os.sep, "/")
        for index, name in enumerate(images.file_names):
            for key in (_key(name), _key(f"{prefix}/{name}")):
                if key in wanted:
                    places.setdefault(key, (part, index))
    return places


def _key(name: str) -> str:
    """Return what names of the same file share, however a table has written them."""
    shown = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return comparable(shown).strip().removeprefix("./")


def _unlisted(name: str, folders: Sequence[Path]) -> Path | None:
    """Return an image of one of the folders that the data set does not list; None without one."""
    if not is_inner_path(name) or suffix_of(name) not in SUFFIXES:
        return None
    for folder in folders:
        path = folder / name
        if os.path.isfile(path) and is_really_inside(folder, path):
            return path
    return None


def _is_same(found: _Found) -> bool:
    """Return whether a file has the content that was decided on, as far as the table tells."""
    if not found.correction.sha256:
        return True
    try:
        return sha256_of(found.path) == found.correction.sha256
    except OSError:
        return False


def _categories(
    parts: Mapping[str, ImageDirectory], found: Sequence[_Found]
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the categories of all parts and the new ones, and the index that each decision means.

    A decision may spell a known category in another way.
    """
    known = list(dict.fromkeys(name for images in parts.values() for name in images.categories))
    in_order = known == sorted(known, key=natural_order)
    meant: dict[str, str] = {}
    for category in dict.fromkeys(one.correction.category for one in found):
        if category is None:
            continue
        name = _meant(category, known)
        if name is None:
            known.append(category)
        meant[category] = name or category
    categories = tuple(sorted(known, key=natural_order) if in_order else known)
    index_of = {name: index for index, name in enumerate(categories)}
    return categories, {category: index_of[name] for category, name in meant.items()}


def _meant(category: str, known: Sequence[str]) -> str | None:
    """Return the known category that a decision names; None if it is new."""
    for key in (comparable, spelled_alike):
        for name in known:
            if key(name) == key(category):
                return name
    return None


def _decide(
    images: ImageDirectory,
    categories: tuple[str, ...],
    index_of: Mapping[str, int],
    found: Sequence[_Found],
    outcome: _Outcome,
) -> ImageDirectory:
    """Return the images of a part with the decisions on them, and only those with a category.

    `index_of` has the index of the category that each decision means.
    """
    number_of = {comparable(name): index for index, name in enumerate(categories)}
    own = [number_of[comparable(name)] for name in images.categories]
    class_indices = np.array([*own, UNLABELLED], dtype=np.int32)[images.class_indices]
    is_kept = np.ones(len(images), dtype=bool)
    for one in found:
        category = one.correction.category
        if category is not None:
            class_index = index_of[category]
            kind = _kind_of(int(class_indices[one.index]), class_index)
            class_indices[one.index] = class_index
        elif one.correction.decision == DISCARDED:
            is_kept[one.index] = False
            kind = "discarded"
        else:
            kind = "not sure"
        outcome.counts[kind] += 1
    is_unlabelled = class_indices == UNLABELLED
    outcome.counts["unlabelled"] += int(np.count_nonzero(is_unlabelled & is_kept))
    columns = images.columns if images.categories else (*images.columns, "category")
    relabelled = replace(
        images,
        categories=categories,
        class_indices=class_indices,
        columns=columns,
        is_relabelled=True,
    )
    return relabelled.select(np.flatnonzero(is_kept & ~is_unlabelled))


def _kind_of(before: int, after: int) -> str:
    """Return how the log calls what became of a class index."""
    if before == UNLABELLED:
        return "joined"
    return "same" if before == after else "changed"


def _join(
    parts: Mapping[str, ImageDirectory],
    found: Sequence[_Found],
    index_of: Mapping[str, int],
    place: Placement,
) -> dict[str, ImageDirectory]:
    """Return the parts with the images that were in none."""
    training = parts[TRAINING]
    root = os.path.realpath(training.root)
    names = [os.path.relpath(os.path.realpath(one.path), root) for one in found]
    indices = [index_of[one.correction.category or ""] for one in found]
    first = 1 + max(int(images.rows[-1]) for images in parts.values() if len(images))
    joining = replace(
        training,
        file_names=Packer(name.replace(os.sep, "/") for name in names).finish(),
        class_indices=np.array(indices, dtype=np.int32),
        rows=first + np.arange(len(found)),
    )
    part_of = np.array(place(joining, parts))
    return {
        part: _concatenate(images, joining.select(np.flatnonzero(part_of == part)))
        for part, images in parts.items()
    }


def _concatenate(images: ImageDirectory, others: ImageDirectory) -> ImageDirectory:
    """Return the images of both, which have the same folder and categories."""
    if not len(others):
        return images
    return replace(
        images,
        file_names=Packer([*images.file_names, *others.file_names]).finish(),
        class_indices=np.concatenate([images.class_indices, others.class_indices]),
        rows=np.concatenate([images.rows, others.rows]),
    )


def _without_empty(
    parts: Mapping[str, ImageDirectory], outcome: _Outcome
) -> dict[str, ImageDirectory]:
    """Return the parts without the categories that have no image for training."""
    training = parts[TRAINING]
    counts = training.class_counts()
    left = np.flatnonzero(counts)
    categories = tuple(training.categories[index] for index in left.tolist())
    new_index = np.full(len(counts), UNLABELLED, dtype=np.int32)
    new_index[left] = np.arange(len(left))
    result = {}
    for part, images in parts.items():
        class_indices = new_index[images.class_indices]
        without = np.unique(images.class_indices[class_indices == UNLABELLED])
        outcome.without_training += [images.categories[index] for index in without.tolist()]
        changed = replace(images, categories=categories, class_indices=class_indices)
        result[part] = changed.select(np.flatnonzero(class_indices != UNLABELLED))
    return result


def _log(corrections: Corrections, outcome: _Outcome) -> None:
    """Log what the decisions have changed, and warn of those that do not count."""
    name = corrections.path.name
    counts = outcome.counts
    texts = {
        "changed": ("image gets another category", "images get another category"),
        "joined": ("image without a category gets one", "images without a category get one"),
        "discarded": ("image is left out", "images are left out"),
        "not sure": ("image stays as it is", "images stay as they are"),
        "same": ("image has its category already", "images have their category already"),
    }
    parts = [counted(counts[kind], *words) for kind, words in texts.items() if counts[kind]]
    logger.info(f"{name}: {'; '.join(parts) or 'no decision counts'}")
    if counts["unlabelled"]:
        number = counted(counts["unlabelled"], "image", "images")
        logger.info(f"Left out: {number} without a category, also in {name}")
    problems = [
        (outcome.gone, "names files that are not in the data set, nor beside the table"),
        (outcome.differing, "was made for other content of these files, and does not count"),
        (outcome.not_listed, "names files that the image directory does not list"),
        (
            list(dict.fromkeys(outcome.without_training)),
            "leaves these categories without a training image, so their images are left out",
        ),
    ]
    for names, text in problems:
        if names:
            logger.warning(f"{name} {text}:{bulleted(list(map(repr, names)))}")
