"""`histograms.json` of a trained model directory: what its validation images were like.

    {"images": 512, "accuracy": 0.93, "confidence": 0.92, "threshold": 0.71,
     "categories": [60, 41, …],
     "features": {"energy": {"edges": [-9.1, …], "counts": [25, …]}, "brightness": …}}

`categories` counts the predictions by class index; those of the rare ones are in a last number if
they are many. A histogram has a count more than it has edges: below the first, …, from the last
up. Of the images, the fraction `accuracy` is recognized, and as many have a confidence of at least
the `threshold`; the mean one is `confidence`. The threshold is null where a few mistakes decide it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from train_pytorch_model.formats.reading import MalformedFileError, read_json
from train_pytorch_model.formats.seen_images import FEATURES

HISTOGRAMS = "histograms.json"
MAX_EDGES = 64
MAX_CATEGORIES = 40  # counted one by one, so that the file has about 2 kB
MAX_COUNTED = 1 << 24  # images in a histogram: 128 MB where it is compared

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Histogram(msgspec.Struct, frozen=True):
    """How many images have a value below the first edge, between two, and from the last up."""

    edges: Annotated[list[float], msgspec.Meta(max_length=MAX_EDGES)]
    counts: Annotated[list[_Count], msgspec.Meta(max_length=MAX_EDGES + 1)]


class Histograms(msgspec.Struct, frozen=True):
    """What the validation images of a model were like."""

    images: Annotated[int, msgspec.Meta(ge=1)]
    accuracy: _Fraction
    confidence: _Fraction
    threshold: _Fraction | None
    categories: Annotated[list[_Count], msgspec.Meta(max_length=MAX_CATEGORIES + 1)]
    features: Mapping[str, Histogram]


def read_histograms(root: Path) -> Histograms:
    """Read the file of a model directory. Raises `MalformedFileError`."""
    histograms = read_json(root / HISTOGRAMS, Histograms)
    for name, histogram in histograms.features.items():
        for problem in _problems(name, histogram):
            raise MalformedFileError(f"{HISTOGRAMS} is not as expected: {name!r} {problem}.")
    return histograms


def _problems(name: str, histogram: Histogram) -> Iterator[str]:
    """Yield what is wrong with the histogram of a feature."""
    edges = histogram.edges
    if name not in FEATURES:
        yield f"should be one of {', '.join(FEATURES)}"
    if len(histogram.counts) != len(edges) + 1 or edges != sorted(edges):
        yield "should have ascending edges, and a count more than these"
    if sum(histogram.counts) > MAX_COUNTED:
        yield f"should count at most {MAX_COUNTED:,} images"
