"""The settings of a run besides the seven parameters; stored in the untrained model directory."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from operator import le
from typing import Annotated, Any, Literal

import msgspec
import tyro
from tyro.constructors import PrimitiveConstructorSpec

from train_pytorch_model.words.errors import ParameterError, listed

MAX_IMAGE_SIZE = 4096
MIN_IMAGE_SIZE = 8
MIN_EARLY_SIZE = 64  # in smaller images, some kernel weights see only padding until the last epochs

Augmentation = Literal["auto", "none", "padded-crop", "random-resized-crop"]


def _shown(metavar: str) -> Any:
    """How `--help` shows an optional value."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def _parsed(words: list[str]) -> int | tuple[int, int] | None:
    """Parse a size on the command line. Raises `ValueError`."""
    if words == ["None"]:
        return None
    if len(words) not in (1, 2) or not all(word.isdecimal() for word in words):
        raise ValueError("expected a side in pixels, such as 96, or height and width, such as 96 128")
    return int(words[0]) if len(words) == 1 else (int(words[0]), int(words[1]))


def _spelled(size: int | tuple[int, int] | None) -> list[str]:
    return [str(side) for side in (size if isinstance(size, tuple) else (size,))]


Size = Annotated[
    int | tuple[int, int] | None,
    tyro.conf.arg(help_behavior_hint=""),
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="INT [INT]",
        instance_from_str=_parsed,
        is_instance=lambda value: value is None or isinstance(value, int | tuple),
        str_from_instance=_spelled,
    ),
]
"""A side, or height and width, in px."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a run besides the seven parameters. The defaults train well."""

    image_size: Size = None
    """A side, or height and width, in px, 8 to 4096. By default the images' own up to 320, else 224."""

    training_size: Size = None
    """Size of training images. By default the image size, but 176 px for 176 to 224 in random crops."""

    early_size: Size = None
    """Training size before the last fifth of the epochs. By default the same; in short runs 4/7 of it."""

    crop_fraction: Annotated[float | None, _shown("FLOAT")] = None
    """Share of the image that validation's centre crop keeps. By default 0.875, or 1 at a common size."""

    augmentation: Augmentation = "auto"
    """Training crops. auto: none in short runs, else padded at a common size, random-resized otherwise."""

    crop_area: float = 0.08
    """Smallest share of an image's area that random-resized-crop takes."""

    horizontal_flip: Literal["auto"] | bool = "auto"
    """Mirror half of the training images. auto: unless left and right matter, as in digits and text."""

    label_smoothing: Annotated[float | None, _shown("FLOAT")] = None
    """Label smoothing in training; below 1. By default 0.1 at a common size from 15 epochs up, else 0."""

    cutmix: Annotated[float | None, _shown("FLOAT")] = None
    """Share of training steps with CutMix. By default 0.5 when fine-tuning for 15 epochs or more, else 0."""

    balance_classes: bool = False
    """Train as if all categories had equally many images."""

    freeze_backbone: bool = False
    """Train the last layer only."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Training and validation precision. auto: bfloat16 or float16 if the hardware has it, else float32."""

    mean: Annotated[tuple[float, float, float] | None, _shown("RED GREEN BLUE")] = None
    """Subtracted from pixels in [0, 1]. By default 0.5, or ImageNet's for pretrained weights."""

    std: Annotated[tuple[float, float, float] | None, _shown("RED GREEN BLUE")] = None
    """Divides pixels after the mean is subtracted. Give both --mean and --std, or neither."""

    def __post_init__(self) -> None:
        """Raise `ParameterError` with every entry that is out of range."""
        sizes = {
            "image_size": (self.image_size, MIN_IMAGE_SIZE),
            "training_size": (self.training_size, MIN_IMAGE_SIZE),
            "early_size": (self.early_size, MIN_IMAGE_SIZE if self._is_of_one_size() else MIN_EARLY_SIZE),
        }
        rules = {
            **{
                f"{name} should be from {least} to {MAX_IMAGE_SIZE}": (size, _is_size(size, least))
                for name, (size, least) in sizes.items()
            },
            **{
                f"{name} should be at most {outer}": (
                    sizes[name][0],
                    _fits(sizes[name][0], sizes[outer][0]),
                )
                for name, outer in (
                    ("training_size", "image_size"),
                    ("early_size", "training_size"),
                    ("early_size", "image_size"),
                )
            },
            "crop_fraction should be above 0 and at most 1": (
                self.crop_fraction,
                self.crop_fraction is None or 0 < self.crop_fraction <= 1,
            ),
            "crop_area should be above 0 and at most 1": (self.crop_area, 0 < self.crop_area <= 1),
            "label_smoothing should be at least 0 and below 1": (
                self.label_smoothing,
                self.label_smoothing is None or 0 <= self.label_smoothing < 1,
            ),
            "cutmix should be from 0 to 1": (self.cutmix, self.cutmix is None or 0 <= self.cutmix <= 1),
            "mean should be three values from 0 to 1": (
                self.mean,
                self.mean is None or all(0 <= value <= 1 for value in self.mean),
            ),
            "std should be three values above 0 and at most 1": (
                self.std,
                self.std is None or all(0 < value <= 1 for value in self.std),
            ),
            "mean and std should be given together": (
                (self.mean, self.std),
                (self.mean is None) == (self.std is None),
            ),
        }
        problems = [f"Recipe: {rule}; it is {value}." for rule, (value, holds) in rules.items() if not holds]
        if problems:
            raise ParameterError("\n".join(problems))

    def _is_of_one_size(self) -> bool:
        """Whether early images are as large as later ones: then `MIN_EARLY_SIZE` does not apply."""
        early, full = self.early_size, self.training_size or self.image_size
        return early is not None and full is not None and sides(early) == sides(full)

    @classmethod
    def from_mapping(cls, entries: Mapping[str, Any]) -> "Recipe":
        """The recipe stored in a model directory. Raises `ParameterError`."""
        known = [field.name for field in fields(cls)]
        unknown = [str(name) for name in entries if name not in known]
        if unknown:
            raise ParameterError(
                f"Recipe: unknown entries:{listed(unknown)}\nThe entries are {', '.join(known)}."
            )
        try:
            return msgspec.convert(dict(entries), cls)
        except msgspec.ValidationError as error:
            raise ParameterError(f"Recipe: {error}.") from error

    def as_mapping(self) -> dict[str, Any]:
        """What a model directory stores: the entries that differ from their defaults, as plain values."""
        defaults = asdict(Recipe())
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != defaults[name]
        }


def sides(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size in px; a single number stands for both."""
    return size if isinstance(size, tuple) else (size, size)


def fits_into(size: int | tuple[int, int], outer: int | tuple[int, int]) -> bool:
    """Whether neither side is longer than that of `outer`."""
    return all(map(le, sides(size), sides(outer)))


def _fits(size: int | tuple[int, int] | None, outer: int | tuple[int, int] | None) -> bool:
    return size is None or outer is None or fits_into(size, outer)


def _is_size(size: int | tuple[int, int] | None, least: int) -> bool:
    return size is None or all(least <= side <= MAX_IMAGE_SIZE for side in sides(size))
