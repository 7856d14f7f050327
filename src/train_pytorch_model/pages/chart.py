"""Line charts, laid out as coordinates of lines, ticks and points that a template draws as SVG."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 30  # margins, for the axis labels
MAX_POINTS = 1000  # per line; no screen shows more
MAX_MARKED = 60  # points; a line with no more has a dot with a tooltip at each
NUM_TICKS = 4
NICE_STEPS = (1, 2, 5, 10)
MAX_DECIMALS = 4  # of a tick label; smaller steps are written with an exponent
MAX_PLAIN = 1e6
LARGEST, SMALLEST_SPAN = 1e100, 1e-100  # within these, the arithmetic below does not overflow


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
    """Values to draw, one per x; those that are not finite, or beyond `LARGEST`, leave a gap."""

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
    finite = [value for one in series for value in one.values if _is_drawn(value)]
    low, high, step = _range(finite, from_zero)
    x_low, x_high = xs[0], xs[-1]

    def x_at(x: float) -> float:
        share = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y_at(y: float) -> float:
        return HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    shown = _thinned(len(xs))
    places = [x_at(xs[index]) for index in shown]

    def line(one: Series) -> Line:
        points = [
            Point(x, y_at(value), f"{x_name.capitalize()} {xs[index]:,}: {one.name} {unit.value(value)}")
            if _is_drawn(value := one.values[index])
            else None
            for index, x in zip(shown, places, strict=True)
        ]
        return _line(one.name, points)

    ticks = [low + step * number for number in range(round((high - low) / step) + 1)]
    return Chart(
        title=title,
        x_name=x_name,
        lines=[line(one) for one in series],
        x_ticks=[Tick(x_at(x), f"{x:,}") for x in _whole_ticks(x_low, x_high)],
        y_ticks=[Tick(y_at(y), unit.tick(y, step)) for y in ticks],
        mark=None if mark is None else x_at(mark),
    )


def _range(values: Sequence[float], from_zero: bool) -> tuple[float, float, float]:
    """The lowest and highest tick, and the spacing between ticks."""
    if not values:
        return 0.0, 1.0, 0.5
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    span = high - low
    if span <= max(abs(high) * 1e-9, SMALLEST_SPAN):  # a flat line
        span = abs(high) if abs(high) > SMALLEST_SPAN else 1.0
        low, high = (high - span, high) if high > SMALLEST_SPAN else (high, high + span)
    step = _nice(span / NUM_TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, last * step, step


def _is_drawn(value: float) -> bool:
    return abs(value) <= LARGEST  # False for NaN


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in NICE_STEPS if nice * power >= step * (1 - 1e-9))


def _whole_ticks(low: int, high: int) -> Iterator[int]:
    step = max(1, math.ceil(_nice(max(high - low, 1) / 6)))
    yield low
    yield from range((low // step + 1) * step, high + 1, step)


def _thinned(count: int) -> Sequence[int]:
    if count <= MAX_POINTS:
        return range(count)
    return [round(place * (count - 1) / (MAX_POINTS - 1)) for place in range(MAX_POINTS)]


def _line(name: str, points: Sequence[Point | None]) -> Line:
    path, marked = [], []
    few = len(points) <= MAX_MARKED
    for index, point in enumerate(points):
        if point is None:
            continue
        before = points[index - 1] if index else None
        after = points[index + 1] if index + 1 < len(points) else None
        if before is not None or after is not None:
            path.append(f"{'M' if before is None else 'L'}{point.x:.2f} {point.y:.2f}")
        if few or (before is None and after is None):
            marked.append(point)
    return Line(name, "".join(path), marked)
