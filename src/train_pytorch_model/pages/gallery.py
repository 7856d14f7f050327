"""A section of a page that shows pictures with captions in a grid: a `Gallery`, drawn by `parts.gallery`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Fact(NamedTuple):
    """A line of a caption: `label: name (detail)`. Only the name may be untrusted."""

    label: str
    name: str
    detail: str = ""


class Heat(NamedTuple):
    """What in a picture a network answered by."""

    picture: str
    """A data URI, transparent where nothing is."""
    region: tuple[float, float, float, float]
    """(left, top, width, height) of what it covers, each from 0 to 1: fractions of the picture's size."""


@dataclass(frozen=True)
class Card:
    """One picture, or several that belong together, and what there is to say about them."""

    pictures: Sequence[str]
    """Data URIs, as made by `page.thumbnail`; an empty one is said to be impossible to show."""
    facts: Sequence[Fact]
    files: Sequence[str] = ()
    """The name of each picture's file; may contain anything."""
    heat: Heat | None = None
    """Of the first picture."""


@dataclass(frozen=True)
class Gallery:
    """A section of the page, which its navigation links."""

    id: str
    title: str
    text: str
    """What is shown, without file or category names; code in backticks."""
    cards: Sequence[Card]
