"""`histograms.json` of a trained model directory: what its validation images were like.

    {"images": 512, "accuracy": 0.93, "confidence": 0.92, "categories": [60, 41, …],
     "features": {"energy": {"edges": [-9.1, …], "counts": [25, …]}, "brightness": …},
     "falls": {"accuracy": [0.21, …], "confidence": [0.14, …], "rises": [1.2, …],
               "energy": -6.1, "deviation": 1.9, "excess": 0.4, "excess_deviation": 0.6}}

`categories` counts the predictions by class index; those of the rare ones are in a last number if
they are many. A histogram has a count more than it has edges: below the first, …, from the last
up. Of the images, the fraction `accuracy` is recognized; the mean confidence is `confidence`.

`falls` says by how much these two were lower for some of the images when they were degraded, in
several ways, one after the other. `rises` are those of the mean excess, which is by how many
standard deviations an energy is above the mean, 0 if it is below; `energy`, `deviation`, `excess`
and its deviation are those of all validation images. It is null, as in models of earlier versions,
where that was not measured.
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
MAX_FALLS = 64
MAX_COUNTED = 1 << 24  # images in a histogram: 128 MB where it is compared

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Difference = Annotated[float, msgspec.Meta(ge=-1, le=1)]
_Energy = Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]
_Deviation = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
_Differences = Annotated[list[_Difference], msgspec.Meta(max_length=MAX_FALLS)]


class Histogram(msgspec.Struct, frozen=True):
    """How many images have a value below the first edge, between two, and from the last up."""

    edges: Annotated[list[float], msgspec.Meta(max_length=MAX_EDGES)]
    counts: Annotated[list[_Count], msgspec.Meta(max_length=MAX_EDGES + 1)]


class Falls(msgspec.Struct, frozen=True):
    """How much worse M degradations are than the images themselves."""

    accuracy: _Differences
    confidence: _Differences
    rises: Annotated[list[_Energy], msgspec.Meta(max_length=MAX_FALLS)]
    energy: _Energy  # the mean of the validation images
    deviation: _Deviation
    excess: _Deviation  # the mean
    excess_deviation: _Deviation


class Histograms(msgspec.Struct, frozen=True):
    """What the validation images of a model were like."""

    images: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    accuracy: _Fraction
    confidence: _Fraction
    categories: Annotated[list[_Count], msgspec.Meta(min_length=1, max_length=MAX_CATEGORIES + 1)]
    features: Mapping[str, Histogram]
    falls: Falls | None = None


def read_histograms(root: Path) -> Histograms:
    """Read the file of a model directory. Raises `MalformedFileError`."""
    histograms = read_json(root / HISTOGRAMS, Histograms)
    for name, histogram in histograms.features.items():
        for problem in _problems(name, histogram):
            raise MalformedFileError(f"{HISTOGRAMS} is not as expected: {name!r} {problem}.")
    if histograms.falls is not None:
        falls = histograms.falls
        if len({len(falls.accuracy), len(falls.confidence), len(falls.rises)}) > 1:
            raise MalformedFileError(
                f"{HISTOGRAMS} is not as expected: 'falls' should have as many of each."
            )
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
