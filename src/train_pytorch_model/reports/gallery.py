"""Galleries: sections of a page that show pictures with captions."""

from collections.abc import Sequence
from typing import NamedTuple

HEAT_NOTE = "Pink is what spoke for the prediction; point at a picture, or tap it, to see it plain."


class Fact(NamedTuple):
    """A line of a caption: `label: name (detail)`. Only the name may be untrusted."""

    label: str
    name: str
    detail: str = ""


class Heat(NamedTuple):
    """What in a picture a network answered by."""

    picture: str  # a data URI, transparent where nothing is
    # Left, top, width, height; 0 to 1, of the picture's size.
    region: tuple[float, float, float, float]


class Card(NamedTuple):
    """One picture, or several that belong together, and what there is to say about them."""

    pictures: Sequence[str]  # data URIs by `thumbnail`; an empty one cannot be shown
    facts: Sequence[Fact]
    files: Sequence[str] = ()  # the name of each picture's file; may contain anything
    heat: Heat | None = None  # of the first picture


class Gallery(NamedTuple):
    """A section of the page, which its navigation links."""

    id: str
    title: str
    text: str  # what is shown, without file or category names; code in backticks
    cards: Sequence[Card]
