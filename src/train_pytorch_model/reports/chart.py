"""Line charts, laid out as coordinates of lines, ticks and points that a template draws as SVG."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from train_pytorch_model.formats.listing import evenly_spaced

WIDTH = 360
HEIGHT = 222
# Margins, for the labels of the axes and the title below.
LEFT = 52
RIGHT = 12
TOP = 12
BOTTOM = 42
PLOT_WIDTH = WIDTH - LEFT - RIGHT
PLOT_HEIGHT = HEIGHT - TOP - BOTTOM
MAX_POINTS = 1000  # per line; no screen shows more
MAX_MARKED = 60  # points; a line with no more has a dot with a tooltip at each
NUM_TICKS = 4  # of the y axis, about
NUM_X_TICKS = 6
MAX_DECIMALS = 4  # of a tick label; smaller steps are written with an exponent
MAX_PLAIN = 1e6


class Point(NamedTuple):
    """A text at its position: a value, or the label of a tick."""

    x: float
    y: float
    text: str


class Line(NamedTuple):
    """A series as a path and its marked points."""

    name: str
    path: str  # the `d` of an SVG path; empty if no two neighbouring values are drawn
    # To mark: all if there are few, else isolated ones, which the path lacks.
    points: Sequence[Point]


class Chart(NamedTuple):
    """One or more series over the same x.

    All coordinates are in a picture of `WIDTH` by `HEIGHT` units.
    """

    title: str
    x_name: str
    lines: Sequence[Line]
    x_ticks: Sequence[Point]
    y_ticks: Sequence[Point]
    mark: float | None  # the x of a vertical line
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def line_chart(
    title: str,
    xs: Sequence[int],
    series: Mapping[str, Sequence[float]],
    *,
    is_percent: bool = False,
    x_name: str = "epoch",
    mark: int | None = None,
) -> Chart:
    """Lay out a chart of series over increasing integers.

    A series has a value per x; those that are not finite leave a gap. Fractions `is_percent` shows
    as percentages; the y axis of other quantities, of which a cut-off one would mislead, includes
    0. A vertical line marks the value `mark` of the xs.
    """
    scale = 100 if is_percent else 1
    suffix = "%" if is_percent else ""
    values = {name: [scale * y for y in ys] for name, ys in series.items()}
    finite = [y for ys in values.values() for y in ys if math.isfinite(y)]
    y_ticks, y_step = _y_ticks(finite, scale, from_zero=not is_percent)
    axes = _Axes(xs[0], xs[-1], y_ticks[0], y_ticks[-1])
    drawn = evenly_spaced(len(xs), MAX_POINTS).tolist()

    def points(name: str, ys: Sequence[float]) -> Iterator[Point | None]:
        for index in drawn:
            x = xs[index]
            y = ys[index]
            if math.isfinite(y):
                text = f"{x_name.capitalize()} {x:,}: {name} {y:.4g}{suffix}"
                yield Point(axes.x_at(x), axes.y_at(y), text)
            else:
                yield None

    return Chart(
        title=title,
        x_name=x_name,
        lines=[_line(name, list(points(name, ys))) for name, ys in values.items()],
        x_ticks=[Point(axes.x_at(x), HEIGHT - BOTTOM, f"{x:,}") for x in _x_ticks(xs)],
        y_ticks=[Point(LEFT, axes.y_at(y), _label(y, y_step) + suffix) for y in y_ticks],
        mark=None if mark is None else axes.x_at(mark),
    )


@dataclass(frozen=True)
class _Axes:
    """Where values are drawn. A single x is in the middle."""

    first_x: int
    last_x: int
    lowest_y: float
    highest_y: float

    def x_at(self, x: float) -> float:
        is_single = self.first_x == self.last_x
        left = (LEFT + WIDTH - RIGHT) / 2 if is_single else LEFT
        return left + (x - self.first_x) / max(self.last_x - self.first_x, 1) * PLOT_WIDTH

    def y_at(self, y: float) -> float:
        height = (y - self.lowest_y) / (self.highest_y - self.lowest_y) * PLOT_HEIGHT
        return HEIGHT - BOTTOM - height


def _x_ticks(xs: Sequence[int]) -> list[int]:
    """Return the first x, and multiples of a round number up to the last."""
    first = xs[0]
    last = xs[-1]
    step = max(1, math.ceil(_round_up(max(last - first, 1) / NUM_X_TICKS)))
    return [first, *range((first // step + 1) * step, last + 1, step)]


def _label(value: float, step: float) -> str:
    """Format the label of a tick; neighbouring ticks are `step` apart."""
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if value == 0:
        return "0"
    if decimals > MAX_DECIMALS or abs(value) >= MAX_PLAIN:
        return f"{value:.2g}"
    return f"{value:,.{decimals}f}"


def _y_ticks(values: Sequence[float], one: float, from_zero: bool) -> tuple[Sequence[float], float]:
    """Return round numbers around the values, at least two, and their spacing.

    They are from 0 to `one` if all values are 0.
    """
    low = min(values, default=0.0)
    high = max(values, default=one)
    if from_zero or high - low <= 1e-9 * abs(high):
        low = min(low, 0.0)
        high = max(high, 0.0)
    if low == high:
        high = one
    step = _round_up((high - low) / NUM_TICKS)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)], step


def _round_up(step: float) -> float:
    """Return the next number that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    multiples = (nice * power for nice in (1, 2, 5, 10))
    return next(multiple for multiple in multiples if multiple >= step * (1 - 1e-9))


def _line(name: str, points: Sequence[Point | None]) -> Line:
    """Connect neighbouring points; None is a gap."""
    path = ""
    marked = []
    neighbours = zip([None, *points], points, [*points[1:], None], strict=False)
    for before, point, after in neighbours:
        if point is None:
            continue
        is_isolated = not (before or after)
        if not is_isolated:
            command = "L" if before else "M"
            path += f"{command}{point.x:.2f} {point.y:.2f}"
        if len(points) <= MAX_MARKED or is_isolated:
            marked.append(point)
    return Line(name, path, marked)
