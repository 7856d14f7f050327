"""`init-transformation`: what `transform` shall do, written down once and applied as often as one likes."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from train_pytorch_model.commands.program import Switch
from train_pytorch_model.errors import ParameterError, out_of_range
from train_pytorch_model.formats.files import check_output
from train_pytorch_model.formats.image_operations import (
    MAX_DEGREES,
    MAX_SIDE,
    CenterCrop,
    ColorJitter,
    Grayscale,
    Operation,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from train_pytorch_model.formats.transformation_directory import write_transformation
from train_pytorch_model.progress import make_voice

JITTER = 0.4  # of brightness, contrast and saturation, as in fb.resnet.torch
NUMBERS = {
    "resize_size": "resize",
    "center_crop_size": "center_crop",
    "pad_padding": "pad",
    "random_resized_crop_size": "random_resized_crop",
    "random_crop_size": "random_crop",
    "random_rotation_degrees": "random_rotation",
    "random_affine_degrees": "random_affine",
}
"""Option → the switch without which it has no effect."""


@dataclass(frozen=True, kw_only=True)
class InitTransformation:
    """Write an image transformation, which transform applies.

    The operations are applied in the order of these options."""

    EXAMPLE: ClassVar[str] = "--resize-size 256 --center-crop-size 224 --output transformation"

    output: Path
    """Where to write it: a directory that is new or empty."""

    resize: bool = True
    """Bring the shorter side to --resize-size, the proportions kept."""
    resize_size: int = 256
    """Pixels, 1 to 4096."""

    center_crop: bool = True
    """Cut out the centre, a square of --center-crop-size. What is missing becomes black."""
    center_crop_size: int = 224
    """Pixels, 1 to 4096."""

    pad: Switch = False
    """Add a black margin of --pad-padding."""
    pad_padding: int = 0
    """Pixels on every edge, 1 to 4096."""

    color_jitter: Switch = False
    """Change brightness, contrast and saturation by up to 40 % each. Training only."""

    grayscale: Switch = False
    """Take the colour away."""

    random_resized_crop: Switch = False
    """Cut out 8 to 100 % of the area and resize it to --random-resized-crop-size. Training only."""
    random_resized_crop_size: int = 256
    """Pixels, 1 to 4096."""

    random_crop: Switch = False
    """Cut out a square of --random-crop-size anywhere. Training only."""
    random_crop_size: int = 224
    """Pixels, 1 to 4096."""

    random_horizontal_flip: bool = True
    """Mirror half of the images. Training only."""

    random_vertical_flip: Switch = False
    """Turn half of the images upside down. Training only."""

    random_rotation: Switch = False
    """Turn by up to --random-rotation-degrees either way. Training only."""
    random_rotation_degrees: float = 0
    """Above 0, up to 360."""

    random_affine: Switch = False
    """Turn by up to --random-affine-degrees either way. Training only."""
    random_affine_degrees: float = 0
    """Above 0, up to 360."""

    random_grayscale: Switch = False
    """Take the colour away from a tenth of the images. Training only."""

    random_perspective: Switch = False
    """Tilt half of the images. Training only."""

    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the options, then write the directory."""
        problems = self._problems()
        if problems:
            raise ParameterError("\n".join(problems))
        check_output(self.output, "--output")
        operations = self._operations()
        write_transformation(self.output, operations, "--output")
        names = ", ".join(operation.name for operation in operations)
        make_voice(is_main=True, quiet=self.quiet).say(
            f"The image transformation is in {self.output}: {names}"
        )

    def _operations(self) -> list[Operation]:
        chosen: list[tuple[bool, Operation]] = [
            (self.resize, Resize(self.resize_size)),
            (self.center_crop, CenterCrop(self.center_crop_size)),
            (self.pad, Pad(self.pad_padding)),
            # The designer's component writes it without strengths, and it changes nothing there.
            (self.color_jitter, ColorJitter(JITTER, JITTER, JITTER)),
            (self.grayscale, Grayscale()),
            (self.random_resized_crop, RandomResizedCrop(self.random_resized_crop_size)),
            (self.random_crop, RandomCrop(self.random_crop_size)),
            (self.random_horizontal_flip, RandomHorizontalFlip()),
            (self.random_vertical_flip, RandomVerticalFlip()),
            (self.random_rotation, RandomRotation(self.random_rotation_degrees)),
            (self.random_affine, RandomAffine(self.random_affine_degrees)),
            (self.random_grayscale, RandomGrayscale()),
            (self.random_perspective, RandomPerspective()),
        ]
        return [operation for is_on, operation in chosen if is_on]

    def _problems(self) -> list[str]:
        """Every option that is out of range, that has no effect, or that the others make impossible."""
        problems = []
        for name, switch in NUMBERS.items():
            value = getattr(self, name)
            highest = MAX_DEGREES if name.endswith("degrees") else MAX_SIDE
            if getattr(self, switch) and not 0 < value <= highest:
                rule = f"greater than 0 and at most {highest}"
                problems.append(out_of_range(_displayed(name), rule, _flag(name), value))
            elif not getattr(self, switch) and value != getattr(type(self), name):
                problems.append(f"{_flag(name)} is given, and {_flag(switch)} is off. Give both or neither.")
        if not self._operations():
            problems.append("No operation is on, and the images would stay as they are. Switch one on.")
        side = self._side_before_random_crop()
        if self.random_crop and side is not None and self.random_crop_size > side:
            problems.append(
                f"--random-crop-size {self.random_crop_size} is more than the {side} pixels that the"
                " operations before it leave of a side. Make it smaller, or the sizes before it larger."
            )
        return problems

    def _side_before_random_crop(self) -> int | None:
        """The length of the shorter side in pixels; None where it is that of the images."""
        side = self.resize_size if self.resize else None
        side = self.center_crop_size if self.center_crop else side
        if side is not None and self.pad:
            side += 2 * self.pad_padding
        return self.random_resized_crop_size if self.random_resized_crop else side


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _displayed(name: str) -> str:
    return name.replace("_", " ").capitalize()
