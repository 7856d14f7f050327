"""`split`: split an image directory in two, such as for training and validation."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from train_pytorch_model.commands.program import Switch
from train_pytorch_model.datasets.splitting import OUTPUTS, categories_in_one_part, split, write_parts
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.words.errors import ParameterError, bulleted, out_of_range
from train_pytorch_model.words.wording import counted

FRACTION = "Fraction of images in the first output"  # the parameter's name in the designer
PORT = "Input image directory"


@dataclass(frozen=True, kw_only=True)
class Split:
    """Split images into two directories, such as for training and validation."""

    EXAMPLE: ClassVar[str] = (
        "--input photographs --fraction 0.8 --output-1 flowers/training --output-2 flowers/rest"
    )

    input: Path
    """Images to split: an ImageDirectory, one folder per category, or a folder of images."""

    output_1: Path
    """ImageDirectory for the first part; must be new or empty."""

    output_2: Path
    """ImageDirectory for the second part; must be new or empty."""

    fraction: float = 0.8
    """Share of the images in the first part. Greater than 0 and less than 1."""

    seed: int = 1
    """Any integer. The same seed and images give the same split."""

    stratified: bool = True
    """Split each category by the fraction, rather than all images together."""

    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check everything, then write both parts."""
        if not 0 < self.fraction < 1:
            rule = "greater than 0 and less than 1"
            raise ParameterError(out_of_range(FRACTION, rule, "--fraction", self.fraction))
        set_up(is_main=True, quiet=self.quiet)
        outputs = (self.output_1, self.output_2)
        for output, name, other, other_name in (
            (self.output_1, OUTPUTS[0], self.input, "input"),
            (self.output_2, OUTPUTS[1], self.input, "input"),
            (self.output_2, OUTPUTS[1], self.output_1, OUTPUTS[0]),
            (self.output_1, OUTPUTS[0], self.output_2, OUTPUTS[1]),
        ):
            check_apart(output, name, other, other_name)
        images = open_image_directory(self.input, PORT)
        for output, name in zip(outputs, OUTPUTS, strict=True):
            check_output(output, name)
        for warning in images.warnings():
            logger.warning(warning)
        parts = split(images, self.fraction, self.seed, self.stratified)
        if images.categories and (alone := categories_in_one_part(parts)):
            logger.warning(f"One part has all images of category{bulleted([repr(name) for name in alone])}")
        without = "" if images.categories else " without categories"
        logger.info(f"Splitting {len(images):,} images{without} into {len(parts[0]):,} and {len(parts[1]):,}")
        write_parts(parts, outputs)
        for part, output in zip(parts, outputs, strict=True):
            logger.info(f"{counted(len(part), 'image is', 'images are')} in {output}")
