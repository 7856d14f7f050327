"""Line charts, laid out as coordinates of lines, ticks and points that a template draws as SVG."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from train_pytorch_model.formats.listing import evenly_spaced

WIDTH, HEIGHT = 360, 222
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 42  # margins, for the axis labels and the title below
MAX_POINTS = 1000  # per line; no screen shows more
MAX_MARKED = 60  # points; a line with no more has a dot with a tooltip at each
NUM_TICKS = 4
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
    points: Sequence[
        Point
    ]  # to mark: all if there are few, else isolated ones, which the path lacks


class Chart(NamedTuple):
    """One or more series over the same x. All coordinates are in a picture of `WIDTH` by `HEIGHT`
    units."""

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
    """Lay out a chart of series over increasing integers; a vertical line marks the value `mark` of
    them.

    A series has a value per x; those that are not finite leave a gap. Fractions `is_percent` shows
    as percentages; the y axis of other quantities, of which a cut-off one would mislead, includes
    0.
    """
    scale, suffix = (100, "%") if is_percent else (1, "")
    values = {name: [scale * y for y in ys] for name, ys in series.items()}
    finite = [y for ys in values.values() for y in ys if math.isfinite(y)]
    y_ticks, y_step = _y_ticks(finite, scale, from_zero=not is_percent)
    x_step = max(1, math.ceil(_round_up(max(xs[-1] - xs[0], 1) / 6)))
    x_ticks = [xs[0], *range((xs[0] // x_step + 1) * x_step, xs[-1] + 1, x_step)]
    x_left = LEFT if len(xs) > 1 else (LEFT + WIDTH - RIGHT) / 2

    def x_at(x: float) -> float:
        return x_left + (x - xs[0]) / max(xs[-1] - xs[0], 1) * (WIDTH - LEFT - RIGHT)

    def y_at(y: float) -> float:
        return (
            HEIGHT
            - BOTTOM
            - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (HEIGHT - TOP - BOTTOM)
        )

    def point(name: str, x: int, y: float) -> Point | None:
        text = f"{x_name.capitalize()} {x:,}: {name} {y:.4g}{suffix}"
        return Point(x_at(x), y_at(y), text) if math.isfinite(y) else None

    drawn = evenly_spaced(len(xs), MAX_POINTS).tolist()
    return Chart(
        title=title,
        x_name=x_name,
        lines=[
            _line(name, [point(name, xs[i], ys[i]) for i in drawn]) for name, ys in values.items()
        ],
        x_ticks=[Point(x_at(x), HEIGHT - BOTTOM, f"{x:,}") for x in x_ticks],
        y_ticks=[Point(LEFT, y_at(y), _label(y, y_step) + suffix) for y in y_ticks],
        mark=None if mark is None else x_at(mark),
    )


def _label(value: float, step: float) -> str:
    """Format the label of a tick; neighbouring ticks are `step` apart."""
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if value == 0:
        return "0"
    if decimals > MAX_DECIMALS or abs(value) >= MAX_PLAIN:
        return f"{value:.2g}"
    return f"{value:,.{decimals}f}"


def _y_ticks(values: Sequence[float], one: float, from_zero: bool) -> tuple[Sequence[float], float]:
    """Round numbers around the values, at least two, and their spacing; 0 to `one` if all are 0."""
    low, high = min(values, default=0.0), max(values, default=one)
    if from_zero or high - low <= 1e-9 * abs(high):
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        high = one
    step = _round_up((high - low) / NUM_TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)], step


def _round_up(step: float) -> float:
    """The next number that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in (1, 2, 5, 10) if nice * power >= step * (1 - 1e-9))


def _line(name: str, points: Sequence[Point | None]) -> Line:
    """Connect neighbouring points; None is a gap."""
    path, marked = "", []
    for before, point, after in zip([None, *points], points, [*points[1:], None], strict=False):
        if point is None:
            continue
        if before or after:
            path += f"{'L' if before else 'M'}{point.x:.2f} {point.y:.2f}"
        if len(points) <= MAX_MARKED or not (before or after):
            marked.append(point)
    return Line(name, path, marked)
