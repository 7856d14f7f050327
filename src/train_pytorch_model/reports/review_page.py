"""The page on which a person decides about images: one file, without a server or a network.

Decisions are kept by the browser, and saved as `corrections.csv`. A browser without scripts lists
the images with what there is to say about each.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape

from train_pytorch_model.formats.corrections import (
    DISCARDED,
    IS_CATEGORY,
    NOT_SURE,
    Correction,
)
from train_pytorch_model.formats.trained_directory import REPORT
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.quality.review_order import (
    DOUBTFUL,
    SUSPECT,
    TWIN,
    UNLABELLED,
    UNLIKE,
)
from train_pytorch_model.reports.gallery import Heat
from train_pytorch_model.reports.page import render_page
from train_pytorch_model.reports.page_links import PageLink, address_of

REVIEW_PAGE = "review.html"
MARK = '<meta name="generator" content="train-pytorch-model review">'
HEAD_BYTES = 4096  # of a page, which have its marks
MAX_PICTURE_BYTES = 20 << 20  # of all pictures of a page, as text
NUM_CHOICES = 9  # categories with a number on the keyboard
KINDS = {
    SUSPECT: ("probably a wrong category", "probably wrong categories"),
    TWIN: (
        "image that looks like one of another category",
        "images that look like one of another category",
    ),
    UNLABELLED: ("image without a category", "images without a category"),
    UNLIKE: ("image unlike the training images", "images unlike the training images"),
    DOUBTFUL: ("label that the model doubts", "labels that the model doubts"),
}


@dataclass(frozen=True)
class Twin:
    """An image that another one looks like."""

    file: str
    category: str
    picture: str  # a data URI


@dataclass(frozen=True)
class Item:
    """An image to decide on."""

    file: str  # relative to the data set, as corrections.csv names it
    sha256: str
    kind: str  # of `review_order`
    given: str  # its category; empty without one
    proposed: str  # empty if nothing is
    why: str  # in words, without names
    choices: Sequence[str]  # the most probable categories, the first one first
    picture: str  # a data URI
    heat: Heat | None = None
    twin: Twin | None = None


@dataclass(frozen=True)
class Review:
    """The contents of the page."""

    spec: ClassifierSpec
    dataset_name: str
    num_images: int  # of the data set
    categories: Sequence[str]
    items: Sequence[Item]  # the most useful decision first
    earlier: Sequence[Correction]  # decisions that the saved table has besides those of the page
    expected_wrong: int  # categories, of the items that are suspects or have a twin
    report: str  # the address of the report on the training; empty if there is none near
    links: Sequence[PageLink]  # to other pages
    num_left: int  # images that need a decision and are not on the page
    command: str  # which trains with the decisions


def render_review(review: Review) -> str:
    """Render the page. Names of files and categories may contain anything."""
    return render_page(
        REVIEW_PAGE,
        script_name="review.js",
        review=review,
        spec=review.spec,
        dataset_name=review.dataset_name,
        images=review.num_images,
        counts=list(_counts(review.items)),
        data=_data(review),
        marks=f"{MARK}\n{_mark_of(review.report)}",
    )


def is_review(page: Path) -> bool:
    """Return whether a file is such a page. Raises `OSError`."""
    return MARK in _head(page)


def review_beside(folder: Path, model: Path) -> Path | None:
    """Return the page in a folder that reviews images with a model, if there is one."""
    page = folder / REVIEW_PAGE
    try:
        head = _head(page)
    except OSError:
        return None
    report = address_of(model / REPORT, folder)
    return page if report and MARK in head and _mark_of(report) in head else None


def _mark_of(report: str) -> str:
    """Return what tells a page about a model from one about another: where its report is."""
    return f'<meta name="report" content="{escape(report)}">'


def _head(page: Path) -> str:
    with page.open("rb") as file:
        return file.read(HEAD_BYTES).decode(errors="replace")


def _counts(items: Sequence[Item]) -> Iterator[tuple[int, str]]:
    """Yield how many items there are of each kind, and what they are."""
    for kind, (one, more) in KINDS.items():
        count = sum(item.kind == kind for item in items)
        if count:
            yield count, one if count == 1 else more


def _key_of(items: Sequence[Item]) -> str:
    """Return what the browser keeps decisions by: other images are another page."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item.file}\0{item.sha256}\0".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _data(review: Review) -> dict[str, Any]:
    """Return what the script gets."""
    index_of = {name: index for index, name in enumerate(review.categories)}
    return {
        "key": _key_of(review.items),
        "categories": [_as_saved(name) for name in review.categories],
        "items": [
            {
                "file": _as_saved(item.file),
                "sha256": item.sha256,
                "given": index_of.get(item.given, -1),
                "proposed": index_of.get(item.proposed, -1),
                "choices": [index_of[name] for name in item.choices if name in index_of],
            }
            for item in review.items
        ],
        "earlier": [[_as_saved(cell) for cell in astuple(row)] for row in review.earlier],
        "words": {"discarded": DISCARDED, "notSure": NOT_SURE, "category": IS_CATEGORY},
        "choices": NUM_CHOICES,
    }


def _as_saved(name: str) -> str:
    """Return a name as corrections.csv has it: bytes that are no text are escaped, not replaced."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
