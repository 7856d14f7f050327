"""Line charts, laid out as coordinates of lines, ticks and points that a template draws as SVG."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 360, 222
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 42  # margins, for the axis labels and the title below
MAX_POINTS = 1000  # per line; no screen shows more
MAX_MARKED = 60  # points; a line with no more has a dot with a tooltip at each
NUM_TICKS = 4
NICE_STEPS = (1, 2, 5, 10)
MAX_DECIMALS = 4  # of a tick label; smaller steps are written with an exponent
MAX_PLAIN = 1e6


@dataclass(frozen=True)
class Unit:
    """How a chart formats its numbers."""

    scale: float = 1.0
    suffix: str = ""

    def value(self, value: float) -> str:
        """Format a single value."""
        return f"{value * self.scale:.4g}{self.suffix}"

    def tick(self, value: float, step: float) -> str:
        """Format the label of a tick; neighbouring ticks are `step` apart."""
        scaled, step = value * self.scale, step * self.scale
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        if scaled == 0:
            return f"0{self.suffix}"
        if decimals > MAX_DECIMALS or abs(scaled) >= MAX_PLAIN:
            return f"{scaled:.2g}{self.suffix}"
        return f"{scaled:,.{decimals}f}{self.suffix}"


NUMBER, PERCENT = Unit(), Unit(100, "%")


@dataclass(frozen=True)
class Series:
    """Values to draw, one per x; those that are not finite leave a gap."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True)
class Point:
    """A value at its position."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Line:
    """A series as a path and its marked points."""

    name: str
    path: str
    """The `d` of an SVG path; empty if no two neighbouring values are drawn."""
    points: Sequence[Point]
    """Points to mark: all if there are few, otherwise only isolated ones, which the path does not show."""


@dataclass(frozen=True)
class Tick:
    """A label on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """One or more series over the same x. All coordinates are in a picture of `WIDTH` by `HEIGHT` units."""

    title: str
    x_name: str
    lines: Sequence[Line]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    mark: float | None
    """The x of a vertical line."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def line_chart(
    title: str,
    xs: Sequence[int],
    series: Sequence[Series],
    unit: Unit,
    from_zero: bool,
    x_name: str = "epoch",
    mark: int | None = None,
) -> Chart:
    """Lay out a chart of series over increasing integers; a vertical line marks the value `mark` of them.

    `from_zero` makes the y axis include 0, for quantities of which a cut-off axis would mislead.
    """
    y_ticks, y_step = _y_ticks([y for each in series for y in each.values if math.isfinite(y)], from_zero)
    x_span = max(xs[-1] - xs[0], 1)
    x_left = LEFT if len(xs) > 1 else (LEFT + WIDTH - RIGHT) / 2

    def x_at(x: float) -> float:
        return x_left + (x - xs[0]) / x_span * (WIDTH - LEFT - RIGHT)

    def y_at(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (HEIGHT - TOP - BOTTOM)

    def point(each: Series, index: int) -> Point | None:
        x, y = xs[index], each.values[index]
        text = f"{x_name.capitalize()} {x:,}: {each.name} {unit.value(y)}"
        return Point(x_at(x), y_at(y), text) if math.isfinite(y) else None

    drawn = _thin_out(len(xs))
    return Chart(
        title=title,
        x_name=x_name,
        lines=[_line(each.name, [point(each, index) for index in drawn]) for each in series],
        x_ticks=[Tick(x_at(x), f"{x:,}") for x in _x_ticks(xs[0], xs[-1])],
        y_ticks=[Tick(y_at(y), unit.tick(y, y_step)) for y in y_ticks],
        mark=None if mark is None else x_at(mark),
    )


def _y_ticks(values: Sequence[float], from_zero: bool) -> tuple[Sequence[float], float]:
    """Round numbers around the values, at least two, and their spacing."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    is_flat = high - low <= 1e-9 * abs(high)
    if from_zero or is_flat:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        high = 1.0
    step = _round_up((high - low) / NUM_TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)], step


def _x_ticks(low: int, high: int) -> Iterator[int]:
    step = max(1, math.ceil(_round_up(max(high - low, 1) / 6)))
    yield low
    yield from range((low // step + 1) * step, high + 1, step)


def _round_up(step: float) -> float:
    """The next number that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in NICE_STEPS if nice * power >= step * (1 - 1e-9))


def _thin_out(count: int) -> Sequence[int]:
    """At most `MAX_POINTS` indices below `count`, evenly spaced, with the first and the last."""
    if count <= MAX_POINTS:
        return range(count)
    return [round(number * (count - 1) / (MAX_POINTS - 1)) for number in range(MAX_POINTS)]


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
