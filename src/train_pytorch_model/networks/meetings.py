"""Where the filters of a convolution meet pixels, and where nothing but padding."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Axis:
    """Which weights of a filter meet pixels along one axis of an input, and where."""

    is_met: tuple[bool, ...]  # of each weight: whether it meets a pixel
    first: int  # of the weights that do
    stop: int  # after the last of them
    before: int  # pixels of padding that these weights meet; a negative number leaves pixels out
    after: int
    num_positions: int  # of the filter: the length of the output
    stride: int
    dilation: int

    @property
    def num_weights(self) -> int:
        """Return how many weights are computed."""
        return self.stop - self.first

    def met_by(self, weight: int) -> slice:
        """Return which pixels of the padded input a weight meets, counted from `first`."""
        start = weight * self.dilation
        return slice(start, start + self.stride * (self.num_positions - 1) + 1, self.stride)


def axis_of(length: int, size: int, stride: int, padding: int, dilation: int) -> Axis:
    """Return where a filter of this size meets an input of this length."""
    span = dilation * (size - 1)  # from the first weight of a filter to its last
    starts = range(-padding, length + padding - span, stride)
    if not starts:  # it does not fit in, which PyTorch says
        return Axis((True,) * size, 0, size, padding, padding, 0, stride, dilation)
    is_met = tuple(
        any(0 <= start + dilation * weight < length for start in starts) for weight in range(size)
    )
    met = [weight for weight in range(size) if is_met[weight]] or range(size)
    first, last = met[0], met[-1]
    before = padding - dilation * first
    after = starts[-1] + dilation * last + 1 - length
    return Axis(is_met, first, last + 1, before, after, len(starts), stride, dilation)


@dataclass(frozen=True)
class Meeting:
    """Which weights of filters meet pixels of an input of one size, and where."""

    rows: Axis
    columns: Axis

    @property
    def is_of_all(self) -> bool:
        """Return whether all weights meet pixels."""
        return all(self.rows.is_met) and all(self.columns.is_met)

    @property
    def is_of_computed(self) -> bool:
        """Return whether all weights that are computed meet pixels."""
        rows, columns = self.rows, self.columns
        are_rows_met = rows.is_met[rows.first : rows.stop]
        return all(are_rows_met) and all(columns.is_met[columns.first : columns.stop])

    @property
    def num_weights(self) -> int:
        """Return how many weights of a filter are computed for each channel."""
        return self.rows.num_weights * self.columns.num_weights

    @property
    def num_positions(self) -> int:
        """Return how many pixels the output has."""
        return self.rows.num_positions * self.columns.num_positions

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Return the padding that the computed weights meet, as `F.pad` takes it."""
        return self.columns.before, self.columns.after, self.rows.before, self.rows.after

    def computed(self, weights: Tensor) -> Tensor:
        """Return a view of the weights that are computed, of (O, C, height, width)."""
        rows, columns = self.rows, self.columns
        return weights[:, :, rows.first : rows.stop, columns.first : columns.stop]

    def is_met(self, device: torch.device) -> Tensor:
        """Return which weights of a filter meet pixels: (height, width), boolean."""
        rows = torch.tensor(self.rows.is_met, device=device)
        return rows[:, None] & torch.tensor(self.columns.is_met, device=device)


@lru_cache(maxsize=4096)
def meeting_of(
    height: int,
    width: int,
    kernel_size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Meeting:
    """Return where the filters of a convolution meet an input of a size."""
    rows = axis_of(height, kernel_size[0], stride[0], padding[0], dilation[0])
    columns = axis_of(width, kernel_size[1], stride[1], padding[1], dilation[1])
    return Meeting(rows, columns)
