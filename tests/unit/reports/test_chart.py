"""Line charts: readable ticks, gaps, markers and bounds."""

import math
from collections.abc import Sequence

import pytest

from train_pytorch_model.reports.chart import (
    LEFT,
    MAX_MARKED,
    MAX_POINTS,
    RIGHT,
    WIDTH,
    Chart,
    line_chart,
)

NAN, INF = math.nan, math.inf


def chart(values: Sequence[float], is_percent: bool = False, mark: int | None = None) -> Chart:
    """A chart of one series over the epochs."""
    return line_chart(
        "Loss", range(1, len(values) + 1), {"it": values}, is_percent=is_percent, mark=mark
    )


@pytest.mark.parametrize(
    ("values", "is_percent", "ticks"),
    [
        ([2.3, 1.0, 0.5], False, ["0", "1", "2", "3"]),
        ([0.95, 0.97, 0.99], True, ["95%", "96%", "97%", "98%", "99%"]),
        ([0.62, 1.0], True, ["60%", "70%", "80%", "90%", "100%"]),
        ([1.0], True, ["0%", "50%", "100%"]),
        ([0.001, 0.0005, 0.00001], False, ["0", "0.0005", "0.0010"]),
        ([4000.0, 5230.0], False, ["0", "2,000", "4,000", "6,000"]),
        ([2e-7, 1e-7], False, ["0", "5e-08", "1e-07", "1.5e-07", "2e-07"]),
        ([1e30, 5.0], False, ["0", "5e+29", "1e+30"]),
        ([0.0, 0.0], False, ["0", "0.5", "1.0"]),
        ([NAN, INF], False, ["0", "0.5", "1.0"]),
        ([0.0, 0.0], True, ["0%", "50%", "100%"]),
        ([NAN, INF], True, ["0%", "50%", "100%"]),
        ([-3.0, -3.0], False, ["-3", "-2", "-1", "0"]),
    ],
)
def test_ticks_are_round_numbers_around_the_values(
    values: Sequence[float], is_percent: bool, ticks: list[str]
) -> None:
    drawn = chart(values, is_percent)
    assert [tick.text for tick in drawn.y_ticks] == ticks
    places = [tick.y for tick in drawn.y_ticks]
    assert places == sorted(places, reverse=True)
    assert all(
        drawn.top - 1e-6 <= point.y <= drawn.bottom + 1e-6 for point in drawn.lines[0].points
    )


@pytest.mark.parametrize(
    ("epochs", "ticks"),
    [
        (1, ["1"]),
        (5, ["1", "2", "3", "4", "5"]),
        (12, ["1", "2", "4", "6", "8", "10", "12"]),
        (100, ["1", "20", "40", "60", "80", "100"]),
        (1500, ["1", "500", "1,000", "1,500"]),
    ],
)
def test_epoch_ticks_are_whole_numbers(epochs: int, ticks: list[str]) -> None:
    drawn = chart([1.0] * epochs)
    assert [tick.text for tick in drawn.x_ticks] == ticks


def test_values_are_drawn_at_their_coordinates() -> None:
    drawn = chart([0.0, 2.0, 1.0], mark=2)
    first, second, third = drawn.lines[0].points
    assert (first.x, third.x) == (LEFT, WIDTH - RIGHT)
    assert second.x == drawn.mark == (first.x + third.x) / 2
    assert (first.y, second.y) == (drawn.bottom, drawn.top)
    assert third.y == (drawn.bottom + drawn.top) / 2
    assert second.text == "Epoch 2: it 2"
    assert (
        drawn.lines[0].path
        == f"M{LEFT}.00 {drawn.bottom}.00L{second.x:.2f} {drawn.top}.00L{third.x:.2f} {third.y:.2f}"
    )


def test_non_finite_values_are_gaps() -> None:
    line = chart([NAN, 1.0, 2.0, INF, 3.0, NAN]).lines[0]
    assert [point.text for point in line.points] == [
        "Epoch 2: it 1",
        "Epoch 3: it 2",
        "Epoch 5: it 3",
    ]
    assert (line.path.count("M"), line.path.count("L")) == (
        1,
        1,
    )  # the fifth is isolated: a marker without a line


def test_long_lines_are_thinned_and_isolated_points_stay_visible() -> None:
    values = [1.0] * (10 * MAX_POINTS)
    line = chart(values).lines[0]
    assert line.path.count("M") + line.path.count("L") == MAX_POINTS
    assert line.points == []
    assert line.path.endswith(f"L{WIDTH - RIGHT}.00 {chart(values).top}.00")
    isolated = [NAN] * MAX_MARKED + [1.0]
    assert len(chart(isolated).lines[0].points) == 1


def test_several_lines_share_their_axes() -> None:
    drawn = line_chart("Loss", [1, 2], {"a": [1, 2], "b": [4, 3]})
    assert [line.name for line in drawn.lines] == ["a", "b"]
    assert [[point.y for point in line.points] for line in drawn.lines] == [[138, 96], [12, 54]]
