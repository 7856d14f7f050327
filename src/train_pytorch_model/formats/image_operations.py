"""The operations of an image transformation: torchvision's, with the same argument names, order and defaults.

They are read from untrusted files: every argument has a type and a range, which `msgspec.convert` checks.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

MAX_SIDE = 4096
MAX_DEGREES = 360

Side = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIDE)]
Size = Side | Annotated[list[Side], msgspec.Meta(min_length=1, max_length=2)]
"""Pixels: a side, or height and width."""
Margin = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIDE)]
Padding = Margin | Annotated[list[Margin], msgspec.Meta(min_length=1, max_length=4)]
"""Pixels: one value for all edges; left/right and top/bottom; or left, top, right, bottom."""
PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
Level = Annotated[int, msgspec.Meta(ge=0, le=255)]
Fill = Level | Annotated[list[Level], msgspec.Meta(min_length=3, max_length=3)]
Interpolation = Literal["nearest", "bilinear", "bicubic"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1000)]
Strength = Annotated[float, msgspec.Meta(ge=0, le=1000)]
Angle = Annotated[float, msgspec.Meta(ge=-MAX_DEGREES, le=MAX_DEGREES)]
Turn = Annotated[float, msgspec.Meta(ge=0, le=MAX_DEGREES)]
Hue = Annotated[float, msgspec.Meta(ge=-0.5, le=0.5)]
HueStrength = Annotated[float, msgspec.Meta(ge=0, le=0.5)]
Centre = Annotated[
    list[Annotated[float, msgspec.Meta(ge=-1e5, le=1e5)]], msgspec.Meta(min_length=2, max_length=2)
]
"""Pixels from the upper left corner."""

AnglePair = Annotated[list[Angle], msgspec.Meta(min_length=2, max_length=2)]
PositivePair = Annotated[list[Positive], msgspec.Meta(min_length=2, max_length=2)]
StrengthPair = Annotated[list[Strength], msgspec.Meta(min_length=2, max_length=2)]
SharePair = Annotated[list[Share], msgspec.Meta(min_length=2, max_length=2)]
HuePair = Annotated[list[Hue], msgspec.Meta(min_length=2, max_length=2)]
Shear = Turn | Annotated[list[Angle], msgspec.Meta(min_length=2, max_length=4)]


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Abstract operation. The class has torchvision's name, and its fields are the arguments."""

    ranges: ClassVar[tuple[str, ...]] = ()
    """Arguments that may be [lowest, highest]."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for an invalid range."""
        for name in self.ranges:
            value = getattr(self, name)
            if isinstance(value, list) and value[0] > value[1]:
                raise ValueError(f"{name} should be [lowest, highest] but is {value}")

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def is_random(self) -> bool:
        """Whether the operation is random, and so for training only."""
        return self.name.startswith("Random")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that are not None, by torchvision's names."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def bound(self, height: int, width: int) -> tuple[int, int]:
        """Return the largest (height, width) in pixels that an image of this size has in the operation."""
        return height, width


class Resize(Operation, frozen=True):
    size: Size
    """A single value is the length of the shorter side."""
    interpolation: Interpolation = "bilinear"
    max_size: Side | None = None
    """Limit of the longer side; only if `size` is a single value."""

    def __post_init__(self) -> None:
        if self.max_size is None:
            return
        sides = _sides(self.size)
        if len(sides) == 2:
            raise ValueError("max_size requires a size of a single side")
        if self.max_size <= sides[0]:
            raise ValueError(f"max_size should be greater than size but is {self.max_size}")

    def bound(self, height: int, width: int) -> tuple[int, int]:
        sides = _sides(self.size)
        if len(sides) == 2:
            return sides[0], sides[1]
        scale = sides[0] / min(height, width)
        if self.max_size is not None:
            scale = min(scale, self.max_size / max(height, width))
        return math.ceil(height * scale), math.ceil(width * scale)


class CenterCrop(Operation, frozen=True):
    size: Size

    def bound(self, height: int, width: int) -> tuple[int, int]:
        sides = _sides(self.size)
        return max(height, sides[0]), max(width, sides[-1])  # a smaller image gets black margins


class Pad(Operation, frozen=True):
    padding: Padding
    fill: Fill = 0
    padding_mode: PaddingMode = "constant"

    def __post_init__(self) -> None:
        _check_padding(self.padding)

    def bound(self, height: int, width: int) -> tuple[int, int]:
        return _pad_size(height, width, self.padding)


class ColorJitter(Operation, frozen=True):
    ranges = ("brightness", "contrast", "saturation", "hue")

    brightness: Strength | StrengthPair | None = None
    contrast: Strength | StrengthPair | None = None
    saturation: Strength | StrengthPair | None = None
    hue: HueStrength | HuePair | None = None

    @property
    def is_random(self) -> bool:
        # The designer's component writes it without strengths: then it changes nothing. With strengths it is
        # random like the `Random…` operations, and must not change the images that a model is evaluated on.
        return any(self.arguments().values())


class Grayscale(Operation, frozen=True):
    num_output_channels: Literal[1, 3] = 1


class RandomResizedCrop(Operation, frozen=True):
    ranges = ("scale", "ratio")

    size: Size
    scale: PositivePair | None = None
    """Fraction of the area; 0.08 to 1 by default."""
    ratio: PositivePair | None = None
    """Width over height; 3/4 to 4/3 by default."""
    interpolation: Interpolation = "bilinear"


class RandomCrop(Operation, frozen=True):
    size: Size
    padding: Padding | None = None
    pad_if_needed: bool = False
    fill: Fill = 0
    padding_mode: PaddingMode = "constant"

    def __post_init__(self) -> None:
        _check_padding(self.padding or 0)

    def bound(self, height: int, width: int) -> tuple[int, int]:
        height, width = _pad_size(height, width, self.padding or 0)
        if self.pad_if_needed:  # torchvision pads both edges by what is missing
            sides = _sides(self.size)
            height += 2 * max(0, sides[0] - height)
            width += 2 * max(0, sides[-1] - width)
        return height, width


class RandomHorizontalFlip(Operation, frozen=True):
    p: Share = 0.5


class RandomVerticalFlip(Operation, frozen=True):
    p: Share = 0.5


class RandomRotation(Operation, frozen=True):
    ranges = ("degrees",)

    degrees: Turn | AnglePair
    interpolation: Interpolation = "nearest"
    expand: bool = False
    center: Centre | None = None
    fill: Fill = 0

    def bound(self, height: int, width: int) -> tuple[int, int]:
        if not self.expand:
            return height, width
        diagonal = math.ceil(math.hypot(height, width)) + 2
        return diagonal, diagonal


class RandomAffine(Operation, frozen=True):
    ranges = ("degrees", "scale")

    degrees: Turn | AnglePair
    translate: SharePair | None = None
    """Maximum shift as a fraction of width and height."""
    scale: PositivePair | None = None
    shear: Shear | None = None
    interpolation: Interpolation = "nearest"
    fill: Fill = 0
    center: Centre | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.shear, list):
            if len(self.shear) == 3:
                raise ValueError("shear should be 1, 2 or 4 numbers but is 3")
            for low, high in zip(self.shear[::2], self.shear[1::2], strict=True):
                if low > high:
                    raise ValueError(f"shear should be [lowest, highest] but is {self.shear}")


class RandomGrayscale(Operation, frozen=True):
    p: Share = 0.1


class RandomPerspective(Operation, frozen=True):
    distortion_scale: Share = 0.5
    p: Share = 0.5
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0


# In the order in which Init Image Transformation applies them.
OPERATIONS: Mapping[str, type[Operation]] = {
    operation.__name__: operation for operation in Operation.__subclasses__()
}
"""Name → operation class, for all supported operations."""


def _sides(size: int | list[int]) -> list[int]:
    return size if isinstance(size, list) else [size]


def _check_padding(padding: int | list[int]) -> None:
    if isinstance(padding, list) and len(padding) == 3:
        raise ValueError("padding should be 1, 2 or 4 numbers but is 3")


def _pad_size(height: int, width: int, padding: int | list[int]) -> tuple[int, int]:
    edges = padding if isinstance(padding, list) else [padding]
    left, top = edges[0], edges[1 % len(edges)]
    right, bottom = (edges[2], edges[3]) if len(edges) == 4 else (left, top)
    return height + top + bottom, width + left + right
