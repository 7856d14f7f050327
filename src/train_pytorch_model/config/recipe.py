"""The recipe: how images are seen and a network is trained, as given and as decided."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import tyro
from tyro.constructors import PrimitiveConstructorSpec

from train_pytorch_model.config.options import shown_as
from train_pytorch_model.config.wording import bulleted, parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.image_classifier.spec import FramingMode

MAX_IMAGE_SIZE = 4096
MIN_IMAGE_SIZE = 8
MIN_EARLY_SIZE = 64  # in smaller images, some kernel weights see only padding until the last epochs

Augmentation = Literal["none", "padded-crop", "random-resized-crop"]
OptimizerOrAuto = Literal["auto", "sgd", "adamw"]
PrecisionName = Literal["auto", "float32", "bfloat16", "float16"]
# Each description completes "… should be".
_FROM_TO = f"from {MIN_IMAGE_SIZE} to {MAX_IMAGE_SIZE}"
Side = Annotated[int, msgspec.Meta(ge=MIN_IMAGE_SIZE, le=MAX_IMAGE_SIZE, description=_FROM_TO)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1, description="above 0 and at most 1")]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1, description="from 0 to 1")]
Byte = Annotated[int, msgspec.Meta(ge=0, le=255, description="from 0 to 255")]
White = Annotated[int, msgspec.Meta(ge=1, le=65535, description="from 1 to 65535")]
Smoothing = Annotated[float, msgspec.Meta(ge=0, lt=1, description="at least 0 and below 1")]


def _parse_size(words: list[str]) -> int | tuple[int, int] | None:
    """Parse a size on the command line. Raises `ValueError`."""
    if words == ["None"]:
        return None
    if len(words) not in (1, 2) or not all(word.isdecimal() for word in words):
        raise ValueError(
            "expected a side in pixels, such as 96, or height and width, such as 96 128"
        )
    if len(words) == 1:
        return int(words[0])
    return (int(words[0]), int(words[1]))


def _write_size(size: int | tuple[int, int]) -> list[str]:
    """Return the words of a size on the command line."""
    return [str(side) for side in (size if isinstance(size, tuple) else (size,))]


Size = Annotated[
    int | tuple[int, int] | None,
    tyro.conf.arg(help_behavior_hint=""),
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="INT [INT]",
        instance_from_str=_parse_size,
        is_instance=lambda value: value is None or isinstance(value, int | tuple),
        str_from_instance=_write_size,
    ),
]
"""A side, or height and width, in px."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a run besides the seven parameters. The defaults train well."""

    image_size: Size = None
    (
        "A side, or height and width, in px, 8 to 4096. By default the images' own up to 320, else"
        " 224."
    )
    training_size: Size = None
    (
        "Size of training images. By default the image size, but 176 px for 176 to 224 in random"
        " crops."
    )
    early_size: Size = None
    (
        "Training size before the last fifth of the epochs. By default the same; in short runs 4/7"
        " of it."
    )
    crop_fraction: Annotated[Positive | None, shown_as("FLOAT")] = None
    (
        "Share of the image that validation's centre crop keeps. By default 0.875, or 1 at a"
        " common size."
    )
    framing: Literal["auto"] | FramingMode = "auto"
    (
        "How images fit the size: cropped, padded or squashed. auto: cropped; padded if many are"
        " elongated."
    )
    augmentation: Literal["auto"] | Augmentation = "auto"
    (
        "Training crops. auto: none in short runs, else padded at a common size, random-resized"
        " otherwise."
    )
    crop_area: Positive = 0.08
    """Smallest share of an image's area that random-resized-crop takes."""
    horizontal_flip: Literal["auto"] | bool = "auto"
    (
        "Mirror half of the training images. auto: unless left and right matter, as in digits and"
        " text."
    )
    label_smoothing: Annotated[Smoothing | None, shown_as("FLOAT")] = None
    (
        "Label smoothing in training; below 1. By default 0.1 at a common size from 15 epochs up,"
        " else 0."
    )
    cutmix: Annotated[Fraction | None, shown_as("FLOAT")] = None
    (
        "Share of training steps with CutMix. By default 0.5 when fine-tuning for 15 epochs or"
        " more, else 0."
    )
    balance_classes: bool = False
    """Train as if all categories had equally many images."""
    freeze_backbone: bool = False
    """Train the last layer only."""
    white_level: Annotated[White | None, shown_as("INT")] = None
    """Value of 16-bit images that is white. By default the highest of 8 to 16 bits that they use.
    """
    background: Annotated[tuple[Byte, Byte, Byte], shown_as("RED GREEN BLUE")] = (255, 255, 255)
    """What is seen through transparent pixels, each 0 to 255. By default white."""
    optimizer: OptimizerOrAuto = "auto"
    """auto: AdamW from scratch without batch norms, as in ViT, Swin and ConvNeXt, else SGD."""
    precision: PrecisionName = "auto"
    (
        "Training and validation precision. auto: bfloat16 or float16 if the hardware has it, else"
        " float32."
    )
    deterministic: bool = False
    """The same bits in each run on the same kind of GPU, which costs speed, or CPU."""
    mean: Annotated[tuple[Fraction, Fraction, Fraction] | None, shown_as("RED GREEN BLUE")] = None
    """Subtracted from pixels in [0, 1]. By default 0.5, or ImageNet's for pretrained weights."""
    std: Annotated[tuple[Positive, Positive, Positive] | None, shown_as("RED GREEN BLUE")] = None
    """Divides pixels after the mean is subtracted. Give both --mean and --std, or neither."""

    def __post_init__(self) -> None:
        """Raise `ParameterError` with every entry that is out of range."""
        _, problems = _convert(asdict(self), parameter)
        problems += self._conflicts()
        if problems:
            raise ParameterError("\n".join(problems))

    def _conflicts(self) -> Iterator[str]:
        """Yield a message for each rule that sizes, or mean and deviation, break together."""
        early = self.early_size
        training = self.training_size
        image = self.image_size
        if early is not None and not self._is_early_size_enough(early):
            yield (
                f"{parameter('early_size')} should be at least {MIN_EARLY_SIZE}, or the training"
                f" size; it is {early}."
            )
        if not fits_into(training, image):
            yield _at_most("training_size", "image_size", training)
        if not fits_into(early, training):
            yield _at_most("early_size", "training_size", early)
        if not fits_into(early, image):
            yield _at_most("early_size", "image_size", early)
        if (self.mean is None) != (self.std is None):
            names = ("mean", "std") if self.std is None else ("std", "mean")
            given, missing = map(parameter, names)
            yield f"{given} is given without {missing}: give both, or neither."

    def _is_early_size_enough(self, early: int | tuple[int, int]) -> bool:
        """Return whether every weight of a kernel learns, or the early size is the later one."""
        later = self.training_size or self.image_size
        is_the_same = later is not None and sides(early) == sides(later)
        return is_the_same or min(sides(early)) >= MIN_EARLY_SIZE

    @classmethod
    def from_mapping(cls, entries: Mapping[str, Any]) -> "Recipe":
        """Return the recipe stored in a model directory. Raises `ParameterError`."""
        known = [field.name for field in fields(cls)]
        unknown = [str(name) for name in entries if name not in known]
        if unknown:
            raise ParameterError(
                f"Recipe: unknown entries:{bulleted(unknown)}\nThe entries are {', '.join(known)}."
            )
        converted, problems = _convert(entries, _entry)
        if problems:
            raise ParameterError("\n".join(problems))
        try:
            return cls(**converted)
        except ParameterError as error:
            raise ParameterError(f"Recipe: {error}") from error

    @property
    def image_sides(self) -> tuple[int, int] | None:
        """Return (height, width) of the image size; None if the recipe names none."""
        return None if self.image_size is None else sides(self.image_size)

    def sizes_other_than(
        self, size: int | tuple[int, int] | None
    ) -> dict[str, int | tuple[int, int]]:
        """Return the image sizes that the recipe names, by their entries, but for `size`."""
        others = {}
        for name in ("image_size", "training_size", "early_size"):
            px = getattr(self, name)
            if px and (not size or sides(px) != sides(size)):
                others[name] = px
        return others

    def as_mapping(self) -> dict[str, Any]:
        """Return what a model directory stores: the entries that differ from their defaults."""
        defaults = asdict(Recipe())
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != defaults[name]
        }


@dataclass(frozen=True, kw_only=True)
class OpenRecipe:
    """A recipe decided from names and image headers. Pixels may decide about flips and white."""

    image_size: tuple[int, int]
    training_size: tuple[int, int]
    early_size: tuple[int, int]
    crop_fraction: float
    framing: FramingMode
    augmentation: Augmentation
    crop_area: float
    horizontal_flip: Literal["auto"] | bool
    label_smoothing: float
    cutmix: float
    balance_classes: bool
    freeze_backbone: bool
    background: tuple[int, int, int]
    white_level: int | None
    optimizer: OptimizerOrAuto
    """`auto` is left to the plan, which knows the network."""
    precision: PrecisionName
    """`auto` is left to the hardware: runs on different hardware have the same recipe."""
    deterministic: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class DecidedRecipe(OpenRecipe):
    """A recipe to train with: nothing is open. Entries mean what they mean in `Recipe`."""

    horizontal_flip: bool
    white_level: int


def sides(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return (height, width) of a size in px; a single number stands for both."""
    return size if isinstance(size, tuple) else (size, size)


def fits_into(size: int | tuple[int, int] | None, outer: int | tuple[int, int] | None) -> bool:
    """Return whether neither side is longer than that of `outer`; what is not given fits."""
    if size is None or outer is None:
        return True
    height, width = sides(size)
    max_height, max_width = sides(outer)
    return height <= max_height and width <= max_width


def _entry(name: str) -> str:
    """Return the name of an entry in a file."""
    return f"Recipe: {name}"


def _at_most(name: str, outer: str, size: object) -> str:
    """Return the message about a size that is larger than another one."""
    return f"{parameter(name)} should be at most {parameter(outer)}; it is {size}."


def _convert(
    entries: Mapping[str, Any], named: Callable[[str], str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the entries as their types, such as tuples for lists, and the others' problems.

    `named` returns an entry's name as the reader knows it.
    """
    types = get_type_hints(Recipe, include_extras=True)
    converted: dict[str, Any] = {}
    problems = []
    for name, value in entries.items():
        try:
            converted[name] = msgspec.convert(value, types[name])
            if types[name] == Size and converted[name] is not None:
                # Apart: msgspec 0.22 crashes on a union of a bounded number and a tuple.
                msgspec.convert(sides(converted[name]), tuple[Side, Side])
        except msgspec.ValidationError as error:
            problems.append(f"{named(name)}{_rule(types[name], error)}; it is {value}.")
    return converted, problems


def _rule(kind: Any, error: msgspec.ValidationError) -> str:
    """Return what is expected of an entry of this type, after the error that it has raised."""
    if not re.search(r"` [<>]=? ", str(error)):  # it is of another type
        return f": {str(error).partition(' - at ')[0]}"  # the value says where
    if kind == Size:
        return f" should be {_FROM_TO}"
    is_in_a_tuple = "$[" in str(error)
    return f" should be {'three values ' if is_in_a_tuple else ''}{_bounds(kind)}"


def _bounds(kind: Any) -> str:
    """Return the description of the bounds in a type, or in the first part that has them."""
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta):
            return str(meta.description)
    for part in get_args(kind):
        bounds = _bounds(part)
        if bounds:
            return bounds
    return ""
