"""TransformationDirectory: operations for every image, as written by Init Image Transformation.

    _meta.yaml          type: TransformationDirectory
                        extension: {}
                        transform_type: Image
    _transforms.json    a list of [operation, arguments], in the order in which they are applied:
                        [["Resize", 256], ["CenterCrop", 224], ["RandomHorizontalFlip", {}]]

The operations are torchvision's, and so are the names, order and defaults of their arguments.
Arguments are a mapping, a list in order, or a number for the first alone; a two-sided size is
therefore a nested list, ["CenterCrop", [[224, 192]]]. A bare JSON file of the same list is read
too.

The file is untrusted: a name in it is looked up only in `OPERATIONS`, nothing outside that table
can run, and every argument has a type and a range, which `msgspec.convert` checks.
"""

import math
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.errors import InvalidTransformationDirectoryError
from train_pytorch_model.formats import reading
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import META, MalformedFileError
from train_pytorch_model.formats.writing import write_json

TYPE = "TransformationDirectory"
TRANSFORMS = "_transforms.json"
IMAGE = "Image"
PICKLE = "Pickle"
MAX_OPERATIONS = 64
MAX_SIDE = 4096
MAX_DEGREES = 360
# Arguments that may be [lowest, highest].
RANGES = ("degrees", "scale", "ratio", "shear", "brightness", "contrast", "saturation", "hue")
PAIR = msgspec.Meta(min_length=2, max_length=2)

Side = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIDE)]
# In px: a side; or height and width.
Size = Side | Annotated[list[Side], msgspec.Meta(min_length=1, max_length=2)]
Margin = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIDE)]
# In px: one value for all edges; left/right and top/bottom; or left, top, right, bottom.
Padding = Margin | Annotated[list[Margin], msgspec.Meta(min_length=1, max_length=4)]
PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
Level = Annotated[int, msgspec.Meta(ge=0, le=255)]
Fill = Level | Annotated[list[Level], msgspec.Meta(min_length=3, max_length=3)]
Interpolation = Literal["nearest", "bilinear", "bicubic"]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1000)]
Strength = Annotated[float, msgspec.Meta(ge=0, le=1000)]
Angle = Annotated[float, msgspec.Meta(ge=-MAX_DEGREES, le=MAX_DEGREES)]
Turn = Annotated[float, msgspec.Meta(ge=0, le=MAX_DEGREES)]
Hue = Annotated[float, msgspec.Meta(ge=-0.5, le=0.5)]
Coordinate = Annotated[float, msgspec.Meta(ge=-1e5, le=1e5)]
Centre = Annotated[list[Coordinate], PAIR]  # from the upper left, in px


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Abstract operation. The class has torchvision's name, and its fields are the arguments."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for an invalid range, or number of values."""
        for name in ("padding", "shear"):
            if len(_listed(getattr(self, name, None))) == 3:
                raise ValueError(f"{name} should be 1, 2 or 4 numbers but is 3")
        for name in RANGES:
            values = _listed(getattr(self, name, None))
            if any(map(operator.gt, values[::2], values[1::2])):
                raise ValueError(f"{name} should be [lowest, highest] but is {values}")

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def is_random(self) -> bool:
        """Whether the operation is random, and so for training only."""
        return self.name.startswith("Random")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that are not None, by torchvision's names."""
        values = msgspec.structs.asdict(self)
        return {name: value for name, value in values.items() if value is not None}

    def bound(self, height: int, width: int) -> tuple[int, int]:
        """Return the largest (height, width) that an image of this size has in the operation."""
        return height, width


class Resize(Operation, frozen=True):
    size: Size  # a single value is the length of the shorter side
    interpolation: Interpolation = "bilinear"
    max_size: Side | None = None  # limit of the longer side; only if `size` is a single value

    def __post_init__(self) -> None:
        sides = _listed(self.size)
        if self.max_size is not None and len(sides) == 2:
            raise ValueError("max_size requires a size of a single side")
        if self.max_size is not None and self.max_size <= sides[0]:
            raise ValueError(f"max_size should be greater than size but is {self.max_size}")

    def bound(self, height: int, width: int) -> tuple[int, int]:
        sides = _listed(self.size)
        if len(sides) == 2:
            return sides[0], sides[1]
        scale = sides[0] / min(height, width)
        if self.max_size is not None:
            scale = min(scale, self.max_size / max(height, width))
        return math.ceil(height * scale), math.ceil(width * scale)


class CenterCrop(Operation, frozen=True):
    size: Size

    def bound(self, height: int, width: int) -> tuple[int, int]:
        sides = _listed(self.size)
        return max(height, sides[0]), max(width, sides[-1])  # a smaller image gets black margins


class Pad(Operation, frozen=True):
    padding: Padding
    fill: Fill = 0
    padding_mode: PaddingMode = "constant"

    def bound(self, height: int, width: int) -> tuple[int, int]:
        return _pad_size(height, width, self.padding)


class ColorJitter(Operation, frozen=True):
    brightness: Strength | Annotated[list[Strength], PAIR] | None = None
    contrast: Strength | Annotated[list[Strength], PAIR] | None = None
    saturation: Strength | Annotated[list[Strength], PAIR] | None = None
    hue: Annotated[float, msgspec.Meta(ge=0, le=0.5)] | Annotated[list[Hue], PAIR] | None = None

    @property
    def is_random(self) -> bool:
        # The designer's component writes it without strengths: then it changes nothing. With
        # strengths it is random like the `Random…` operations, and must not change the images that
        # a model is evaluated on.
        return any(self.arguments().values())


class Grayscale(Operation, frozen=True):
    num_output_channels: Literal[1, 3] = 1


class RandomResizedCrop(Operation, frozen=True):
    size: Size
    # Fraction of the area; 0.08 to 1 by default.
    scale: Annotated[list[Positive], PAIR] | None = None
    # Width over height; 3/4 to 4/3 by default.
    ratio: Annotated[list[Positive], PAIR] | None = None
    interpolation: Interpolation = "bilinear"


class RandomCrop(Operation, frozen=True):
    size: Size
    padding: Padding | None = None
    pad_if_needed: bool = False
    fill: Fill = 0
    padding_mode: PaddingMode = "constant"

    def bound(self, height: int, width: int) -> tuple[int, int]:
        height, width = _pad_size(height, width, self.padding or 0)
        if self.pad_if_needed:  # torchvision pads both edges by what is missing
            sides = _listed(self.size)
            height += 2 * max(0, sides[0] - height)
            width += 2 * max(0, sides[-1] - width)
        return height, width


class RandomHorizontalFlip(Operation, frozen=True):
    p: Fraction = 0.5


class RandomVerticalFlip(Operation, frozen=True):
    p: Fraction = 0.5


class RandomRotation(Operation, frozen=True):
    degrees: Turn | Annotated[list[Angle], PAIR]
    interpolation: Interpolation = "nearest"
    expand: bool = False
    center: Centre | None = None
    fill: Fill = 0

    def bound(self, height: int, width: int) -> tuple[int, int]:
        diagonal = math.ceil(math.hypot(height, width)) + 2
        return (diagonal, diagonal) if self.expand else (height, width)


class RandomAffine(Operation, frozen=True):
    degrees: Turn | Annotated[list[Angle], PAIR]
    translate: Annotated[list[Fraction], PAIR] | None = (
        None  # maximum shift as a fraction of width and height
    )
    scale: Annotated[list[Positive], PAIR] | None = None
    shear: Turn | Annotated[list[Angle], msgspec.Meta(min_length=2, max_length=4)] | None = None
    interpolation: Interpolation = "nearest"
    fill: Fill = 0
    center: Centre | None = None


class RandomGrayscale(Operation, frozen=True):
    p: Fraction = 0.1


class RandomPerspective(Operation, frozen=True):
    distortion_scale: Fraction = 0.5
    p: Fraction = 0.5
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0


# Name → operation class, in the order in which Init Image Transformation applies them.
OPERATIONS: Mapping[str, type[Operation]] = {
    operation.__name__: operation for operation in Operation.__subclasses__()
}
HINT = f"The operations are {', '.join(OPERATIONS)}. init-transformation writes such a directory."


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _pad_size(height: int, width: int, padding: int | list[int]) -> tuple[int, int]:
    edges = _listed(padding)
    left = edges[0]
    top = edges[1 % len(edges)]
    right, bottom = edges[2:] or (left, top)
    return height + top + bottom, width + left + right


@dataclass(frozen=True)
class Transformation:
    """Operations in the order in which they are applied."""

    title: str  # its name in messages, such as `Input image transformation flips`
    operations: tuple[Operation, ...]

    def for_inference(self) -> "Transformation":
        """Return the same without its random operations."""
        return replace(self, operations=tuple(o for o in self.operations if not o.is_random))

    def __str__(self) -> str:
        return ", ".join(operation.name for operation in self.operations) or "no operation"


def open_transformation(path: Path, port: str) -> Transformation:
    """Open and check a directory or bare JSON file.

    Raises `InvalidTransformationDirectoryError`.
    """
    title = f"{port} {path}"
    try:
        return Transformation(title, _read(path))
    except MalformedFileError as error:
        raise InvalidTransformationDirectoryError(title, str(error), HINT) from error


def write_transformation(
    path: Path, operations: Sequence[Operation], name: str, overwrite: bool = False
) -> None:
    """Write the directory. Raises `OutputDirectoryError`."""
    entries = []
    for operation in operations:
        arguments: Any = msgspec.to_builtins(operation)
        first = operation.__struct_fields__[0]
        # As the classic component writes them: a number alone, or else a mapping.
        if arguments.keys() == {first} and not isinstance(arguments[first], list):
            number = arguments[first]
            arguments = int(number) if number == int(number) else number
        entries.append([operation.name, arguments])
    meta = {"type": TYPE, "extension": {}, "transform_type": IMAGE}
    with writing_directory(path, meta, name, overwrite=overwrite) as root:
        write_json(root / TRANSFORMS, entries)


def _read(path: Path) -> tuple[Operation, ...]:
    if not os.path.exists(path):
        raise MalformedFileError(explain_missing(path, "directory or file"))
    file = path
    if path.is_dir():
        kind = reading.read_meta(path, TYPE).get("transform_type")
        if kind != IMAGE:
            never = " A pickle can run code, and is never loaded." if kind == PICKLE else ""
            raise MalformedFileError(
                f"{META} says transform_type {kind!r}, expected {IMAGE!r}.{never}"
            )
        file = reading.file_inside(path, TRANSFORMS)
    entries = reading.read_json(file, list[Any])
    if len(entries) > MAX_OPERATIONS:
        text = f"{file.name} has {len(entries):,} operations, expected at most {MAX_OPERATIONS}."
        raise MalformedFileError(text)
    operations = []
    problems = []
    for number, entry in enumerate(entries, 1):
        try:
            operations.append(_operation(entry))
        except ValueError as error:  # msgspec's ValidationError is one
            problems.append(f"entry {number}: {error}.")
    if problems:
        raise MalformedFileError(f"{file.name} cannot be used:{bulleted(problems)}\n")
    return tuple(operations)


def _operation(entry: Any) -> Operation:
    """Return the operation of an entry. Raises `ValueError`."""
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise ValueError(f"expected [operation, arguments], found {_abbreviate(entry)}")
    name, arguments = entry
    operation = OPERATIONS.get(name)
    if operation is None:
        raise ValueError(f"unknown operation {_abbreviate(name)}")
    try:
        return msgspec.convert(_named_arguments(operation, arguments), operation)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from error


def _named_arguments(operation: type[Operation], arguments: Any) -> dict[str, Any]:
    """Return arguments, of which a list is in order and a number is the first, by their names."""
    name = operation.__name__
    parameters = operation.__struct_fields__
    if isinstance(arguments, dict):
        return arguments
    if isinstance(arguments, (int, float)) and not isinstance(arguments, bool):
        arguments = [arguments]
    if not isinstance(arguments, list):
        raise ValueError(
            f"{name} takes a number, a list or a mapping, found {_abbreviate(arguments)}"
        )
    if len(arguments) > len(parameters):
        raise ValueError(
            f"{name} takes at most {len(parameters)} arguments ({', '.join(parameters)}), found"
            f" {len(arguments)}"
        )
    return dict(zip(parameters, arguments, strict=False))


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " …"
