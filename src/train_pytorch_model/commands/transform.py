"""`transform`: resize, crop or augment a directory of images."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.formats.transformation_directory import open_transformation
from train_pytorch_model.inputs.bad_images import read_headers, without_bad_images
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.words.config import Switch

OUTPUT = "output"
TRANSFORMATION = "Input image transformation"  # the ports' names in the designer
IMAGES = "Input image directory"


@dataclass(frozen=True, kw_only=True)
class Transform:
    """Apply an image transformation to a directory of images, and write the results."""

    EXAMPLE: ClassVar[str] = (
        "--input flowers/training --transformation transformation --mode training"
        " --output transformed/training"
    )

    input: Path
    """Images, labelled or not: an ImageDirectory, one folder per category, or a folder of images."""

    transformation: Path
    """Transformation from init-transformation: the directory, or its _transforms.json alone."""

    mode: Literal["training", "inference"]
    """training applies all operations; inference skips random ones, for validation and test images."""

    output: Path
    """ImageDirectory of PNG files to write; must be new or empty."""

    random_seed: int = 1
    """Any integer. The same seed and images give the same output."""

    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the inputs, then transform."""
        set_up(is_main=True, quiet=self.quiet)
        check_apart(self.output, OUTPUT, self.input, "input")
        transformation = open_transformation(self.transformation, TRANSFORMATION)
        if self.mode == "inference":
            transformation = transformation.for_inference()
        images = open_image_directory(self.input, IMAGES)
        check_output(self.output, OUTPUT)
        for warning in images.warnings():
            logger.warning(warning)
        images, bad_images = without_bad_images(images, read_headers(images).bad)
        logger.info(f"Transforming {len(images):,} images for {self.mode}: {transformation}")

        from train_pytorch_model.stories.transform import transform

        written = transform(images, bad_images, transformation, self.random_seed, self.output, OUTPUT)
        logger.info(f"The {written:,} transformed images are in {self.output}")
