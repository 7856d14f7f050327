"""`init-transformation` and `transform`: write an image transformation, and apply it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from train_pytorch_model.config.options import Switch
from train_pytorch_model.config.wording import flag, out_of_range
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats import replacing
from train_pytorch_model.formats import transformation_directory as directory
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.formats.transformation_directory import OPERATIONS
from train_pytorch_model.inputs.damaged_categories import without_damaged_categories
from train_pytorch_model.inputs.headers import read_headers
from train_pytorch_model.inputs.unreadable_images import without_unreadable_images
from train_pytorch_model.machine.console import logger, set_up

OUTPUT = "output"
TRANSFORMATION = "Input image transformation"  # the ports' names in the designer
IMAGES = "Input image directory"
# The designer's component writes no strengths, so there it has no effect. These are
# fb.resnet.torch's.
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}
SWITCHES = {re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(): name for name in OPERATIONS}
"""Option → the operation that it switches on, in the order in which they are applied."""
NUMBERS = {
    switch: f"{switch}_{OPERATIONS[name].__struct_fields__[0]}" for switch, name in SWITCHES.items()
}
"""Switch → the option for the operation's first argument, which the command has if that is a
number."""


@dataclass(frozen=True, kw_only=True)
class InitTransformation:
    """Write an image transformation for transform to apply.

    The operations are applied in the order of the options below."""

    EXAMPLE = "--resize-size 256 --center-crop-size 224 --output transformation"

    output: Path
    """Transformation directory to write; must be new or empty."""
    resize: bool = True
    """Resize the shorter side to --resize-size, keeping the aspect ratio."""
    resize_size: int = 256
    """Length of the shorter side in pixels, 1 to 4096."""
    center_crop: bool = True
    """Crop the central square of --center-crop-size. Smaller images are padded with black."""
    center_crop_size: int = 224
    """Side of the crop in pixels, 1 to 4096."""
    pad: Switch = False
    """Add a black border of --pad-padding."""
    pad_padding: int = 0
    """Width of the border in pixels, 1 to 4096."""
    color_jitter: Switch = False
    """Randomly change brightness, contrast and saturation by up to 40 % each. Training only."""
    grayscale: Switch = False
    """Convert to greyscale."""
    random_resized_crop: Switch = False
    """Crop a random 8 to 100 % of the area, resized to --random-resized-crop-size. Training only.
    """
    random_resized_crop_size: int = 256
    """Side of the resized crop in pixels, 1 to 4096."""
    random_crop: Switch = False
    """Crop a square of --random-crop-size at a random position. Training only."""
    random_crop_size: int = 224
    """Side of the crop in pixels, 1 to 4096."""
    random_horizontal_flip: bool = True
    """Flip half of the images horizontally. Training only."""
    random_vertical_flip: Switch = False
    """Flip half of the images vertically. Training only."""
    random_rotation: Switch = False
    """Rotate by up to --random-rotation-degrees in either direction. Training only."""
    random_rotation_degrees: float = 0
    """Largest angle in degrees, above 0 and up to 360."""
    random_affine: Switch = False
    """Rotate by up to --random-affine-degrees in either direction. Training only."""
    random_affine_degrees: float = 0
    """Largest angle in degrees, above 0 and up to 360."""
    random_grayscale: Switch = False
    """Convert a tenth of the images to greyscale. Training only."""
    random_perspective: Switch = False
    """Distort the perspective of half of the images. Training only."""
    overwrite: Switch = False
    """Replace the transformation in the output, if it is whole, once the new one is complete."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the options, then write the directory."""
        set_up(quiet=self.quiet)
        problems = list(self._problems())
        if problems:
            raise ParameterError("\n".join(problems))
        check_output(self.output, OUTPUT, kind=replacing.TRANSFORMATION, overwrite=self.overwrite)
        operations = [self._operation(switch) for switch in SWITCHES if getattr(self, switch)]
        directory.write_transformation(self.output, operations, OUTPUT, self.overwrite)
        names = ", ".join(operation.name for operation in operations)
        logger.info(f"The image transformation is in {self.output}: {names}")

    def _operation(self, switch: str) -> directory.Operation:
        """Return the operation of a switch that is on."""
        operation = OPERATIONS[SWITCHES[switch]]
        if switch == "color_jitter":
            return operation(**JITTER)
        if hasattr(self, NUMBERS[switch]):
            return operation(getattr(self, NUMBERS[switch]))
        return operation()

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong with options: alone, without effect, or with one another."""
        for switch, name in NUMBERS.items():
            if hasattr(self, name):
                yield from self._problems_of_number(switch, name)
        if not any(getattr(self, switch) for switch in SWITCHES):
            yield "No operation is on, so the images would stay as they are. Switch one on."
        side = self._side_before_random_crop()
        if self.random_crop and side is not None and self.random_crop_size > side:
            yield (
                f"--random-crop-size {self.random_crop_size} exceeds the shorter side that the"
                f" operations before it leave, {side} pixels. Make it smaller, or the sizes before"
                " it larger."
            )

    def _problems_of_number(self, switch: str, name: str) -> Iterator[str]:
        """Yield a message if the number of a switch is out of range, or has no effect."""
        value = getattr(self, name)
        highest = directory.MAX_DEGREES if name.endswith("degrees") else directory.MAX_SIDE
        is_on = getattr(self, switch)
        if is_on and not 0 < value <= highest:
            rule = f"greater than 0 and at most {highest}"
            yield out_of_range(name.replace("_", " ").capitalize(), rule, flag(name), value)
        elif not is_on and value != getattr(type(self), name):
            yield f"{flag(name)} is given, and {flag(switch)} is off. Give both or neither."

    def _side_before_random_crop(self) -> int | None:
        """Return the shorter side that the operations before it leave; None if images decide it."""
        side = None
        if self.resize:
            side = self.resize_size
        if self.center_crop:
            side = self.center_crop_size
        if self.pad and side is not None:
            side += 2 * self.pad_padding
        if self.random_resized_crop:
            side = self.random_resized_crop_size
        return side


@dataclass(frozen=True, kw_only=True)
class Transform:
    """Apply an image transformation to a directory of images, and write the results."""

    EXAMPLE = (
        "--input flowers/training --transformation transformation --mode training"
        " --output transformed/training"
    )

    input: Path
    """Images, labelled or not: an ImageDirectory, one folder per category, or a folder of images.
    """
    transformation: Path
    """Transformation from init-transformation: the directory, or its _transforms.json alone."""
    mode: Literal["training", "inference"]
    """training applies all operations; inference skips random ones, for validation and test images.
    """
    output: Path
    """ImageDirectory of PNG files to write; must be new or empty."""
    random_seed: int = 1
    """Any integer. The same seed and images give the same output."""
    overwrite: Switch = False
    """Replace the ImageDirectory in the output, if it is whole, once the new one is complete."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the inputs, then transform."""
        set_up(quiet=self.quiet)
        check_apart(self.output, OUTPUT, self.input, "input")
        transformation = directory.open_transformation(self.transformation, TRANSFORMATION)
        if self.mode == "inference":
            transformation = transformation.for_inference()
        images = without_damaged_categories(open_image_directory(self.input, IMAGES))
        check_output(self.output, OUTPUT, kind=replacing.IMAGES, overwrite=self.overwrite)
        for warning in images.warnings():
            logger.warning(warning)
        unreadable = read_headers(images).unreadable
        images, unreadable_images = without_unreadable_images(images, unreadable)
        logger.info(f"Transforming {len(images):,} images for {self.mode}: {transformation}")

        from train_pytorch_model.stories.transform import transform

        written = transform(
            images,
            unreadable_images,
            transformation,
            self.random_seed,
            self.output,
            OUTPUT,
            self.overwrite,
        )
        logger.info(f"The {written:,} transformed images are in {self.output}")
