"""`split`: one data set into two or three."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Annotated

import numpy as np

from train_pytorch_model.config.options import OptionalPath, Switch, shown_as
from train_pytorch_model.config.wording import bulleted, counted, out_of_range
from train_pytorch_model.datasets import grouping, splitting
from train_pytorch_model.datasets.correcting import Corrections, correct, open_corrections
from train_pytorch_model.datasets.parts import OUTPUTS, write_parts
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.evaluation.metrics import confidence_interval
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.formats.part_names import PARTS
from train_pytorch_model.formats.table_files import tables_in
from train_pytorch_model.machine.command_lines import conversion_command
from train_pytorch_model.machine.console import logger, set_up

FRACTION = "Fraction of images in the first output"  # the parameter's name in the designer
PORT = "Input image directory"
FEW_IMAGES = 5  # of a category; with fewer, one mistake changes its recall by 25 points or more
TYPICAL_ACCURACY = 0.8  # at which the uncertainty is shown
CERTAIN = 0.1  # an interval narrower than 10 points is not mentioned
OF_FEW_IMAGES = (0.6, 0.2, 0.2)
"""Fractions that leave enough for a validation and a test of a few dozen images."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Split images into two or three directories, such as for training, validation and a test."""

    EXAMPLE = (
        "--input photographs --fractions 0.6 0.2 0.2 --output-1 flowers/training"
        " --output-2 flowers/validation --output-3 flowers/test"
    )

    input: Path
    """Images to split: an ImageDirectory, one folder per category, or a folder of images."""
    output_1: Path
    """ImageDirectory for the first part; must be new or empty."""
    output_2: Path
    """ImageDirectory for the second part; must be new or empty."""
    output_3: OptionalPath = None
    """ImageDirectory for the third part, if --fractions names three; must be new or empty."""
    fraction: float = 0.8
    """Share of the images in the first of two parts. Greater than 0 and less than 1."""
    fractions: Annotated[tuple[float, ...], shown_as("F F [F]")] = ()
    """Share of the images in each part, instead of --fraction. Greater than 0; they add up to 1."""
    seed: int = 1
    """Any integer. The same seed and images give the same split."""
    group_by: Annotated[str | None, shown_as("REGEX|parent|none")] = None
    (
        "Keep images together whose names agree in what this regular expression matches, or in"
        " their folder; with none, not even those that look alike."
    )
    stratified: bool = True
    (
        "Split each category by the fractions, as far as groups allow, rather than all images"
        " together."
    )
    corrections: OptionalPath = None
    """Table of decisions, as `review` saves it: other categories, and images to leave out."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check everything, then write the parts."""
        fractions = self._fractions()
        set_up(quiet=self.quiet)
        outputs = [output for output in (self.output_1, self.output_2, self.output_3) if output]
        self._check_apart(outputs)
        corrections = open_corrections(self.corrections)
        images = open_image_directory(self.input, PORT)
        for output, name in zip(outputs, OUTPUTS, strict=False):
            check_output(output, name)
        for warning in images.warnings():
            logger.warning(warning)
        if not images.categories:
            _warn_of_tables(self.input)

        groups = grouping.group_images(images, self.group_by or "")
        parts = splitting.split(images, fractions, self.seed, self.stratified, groups.labels)
        self._log_plan(images, groups, parts)
        if corrections:
            parts = self._correct(parts, corrections)
        if parts[0].categories:
            _warn_of_categories(parts, fractions)
        write_parts(parts, outputs)
        for index, (part, output) in enumerate(zip(parts, outputs, strict=True)):
            images_are = counted(len(part), "image is", "images are")
            uncertainty = "" if index == 0 else uncertainty_of(part)
            logger.info(f"{images_are} in {output}{uncertainty}")

    def _correct(
        self, parts: Sequence[ImageDirectory], corrections: Corrections
    ) -> list[ImageDirectory]:
        """Return the parts with the decisions of a table, which move no image between them."""
        named = dict(zip(PARTS, parts, strict=False))
        corrected = correct(self.input, named, corrections)
        return [corrected[part] for part in named]

    def _check_apart(self, outputs: Sequence[Path]) -> None:
        """Raise `OutputDirectoryError` if an output is within the input or another output."""
        named = list(zip(outputs, OUTPUTS, strict=False))
        for output, name in named:
            check_apart(output, name, self.input, "input")
        for (output, name), (other, other_name) in permutations(reversed(named), 2):
            check_apart(output, name, other, other_name)

    def _log_plan(
        self, images: ImageDirectory, groups: grouping.Groups, parts: Sequence[ImageDirectory]
    ) -> None:
        """Log how many images each part gets, and which stay together."""
        without = "" if images.categories else " without categories"
        *sizes, last = (f"{len(part):,}" for part in parts)
        logger.info(f"Splitting {len(images):,} images{without} into {', '.join(sizes)} and {last}")
        indices = [images.rows.searchsorted(part.rows) for part in parts]
        text = "; ".join(self._describe(groups, indices))
        if text:
            logger.info(text)

    def _describe(self, groups: grouping.Groups, parts: Sequence[np.ndarray]) -> Iterator[str]:
        """Yield which images stay together, and how many groups there are in the parts."""
        if groups.num_twins:
            twins = counted(groups.num_twins, "image looks like another", "images look like others")
            yield f"{twins} and stay with them"
        if groups.num_named or groups.num_unmatched:
            *counts, last = (f"{len(np.unique(groups.labels[part])):,}" for part in parts)
            yield (
                f"{counted(groups.num_named, 'group', 'groups')} by {self.group_by}, with twins"
                f" {', '.join(counts)} and {last} in the parts"
            )
        if groups.num_unmatched:
            unmatched = counted(
                groups.num_unmatched,
                "image that it does not match is",
                "images that it does not match are",
            )
            yield f"{unmatched} in no group"

    def _fractions(self) -> Sequence[float]:
        """Return the fractions of two or three parts. Raises `ParameterError`."""
        num_parts = 3 if self.output_3 else 2
        if self.fractions:
            self._check_fractions(num_parts)
            return self.fractions
        if self.output_3:
            example = " ".join(map(str, OF_FEW_IMAGES))
            raise ParameterError(f"--output-3 needs --fractions, such as --fractions {example}.")
        if not 0 < self.fraction < 1:
            rule = "greater than 0 and less than 1"
            raise ParameterError(out_of_range(FRACTION, rule, "--fraction", self.fraction))
        return (self.fraction, 1 - self.fraction)

    def _check_fractions(self, num_parts: int) -> None:
        """Raise `ParameterError` unless --fractions has one for each part, and they add up to 1."""
        if self.fraction != type(self).fraction:
            raise ParameterError("--fraction and --fractions are mutually exclusive. Give one.")
        are_positive = all(fraction > 0 for fraction in self.fractions)
        add_up = math.isclose(sum(self.fractions), 1)
        if len(self.fractions) != num_parts or not are_positive or not add_up:
            fractions = " ".join(map(str, self.fractions))
            raise ParameterError(
                f"--fractions {fractions}: give a number greater than 0 for each of the"
                f" {num_parts} outputs. They add up to 1."
            )


def _warn_of_tables(folder: Path) -> None:
    """Warn of a table beside images without categories, which may tell them: it is left behind."""
    tables = tables_in(folder)
    if tables:
        logger.warning(
            f"{tables[0].name} is not read here and not in the parts. If it tells the categories,"
            " give them to the images first, and split those:"
            f" `{conversion_command(folder, 'images')}`"
        )


def _warn_of_categories(parts: Sequence[ImageDirectory], fractions: Sequence[float]) -> None:
    """Warn of categories without images in a part, or with very few."""
    has_images = np.stack([part.class_counts() > 0 for part in parts])  # (parts, categories)
    in_some_parts = np.flatnonzero(has_images.any(axis=0) & ~has_images.all(axis=0))
    names = [repr(parts[0].categories[index]) for index in in_some_parts]
    if names:
        logger.warning(f"Not all parts have images of category{bulleted(names)}")
    warning = few_images_warning(parts, fractions)
    if warning:
        logger.warning(warning)


def uncertainty_of(part: ImageDirectory) -> str:
    """Return how uncertain an accuracy on a part is; an empty text if that is not worth a word."""
    lowest, highest = confidence_interval(TYPICAL_ACCURACY, len(part))
    if not part.categories or highest - lowest < CERTAIN:
        return ""
    accuracy = f"an accuracy of {TYPICAL_ACCURACY:.0%} on them"
    return f"; {accuracy} means {lowest:.0%} to {highest:.0%}"


def few_images_warning(parts: Sequence[ImageDirectory], fractions: Sequence[float]) -> str:
    """Return a warning if a part after the first has very few images of a category.

    Otherwise return an empty text.
    """
    counts_of_parts = [part.class_counts() for part in parts[1:]]
    fewest = min(int(counts[counts > 0].min()) for counts in counts_of_parts)
    if fewest >= FEW_IMAGES:
        return ""
    example = f"--fractions {' '.join(map(str, OF_FEW_IMAGES))}"
    advice = "Only more images help."
    if len(parts) == 2:
        advice = (
            "Rather than splitting it again for a test, hold out enough at once:"
            f" {example} --output-3 …"
        )
    elif min(fractions[1:]) < min(OF_FEW_IMAGES[1:]):
        advice = f"Hold out more: {example}"
    images = counted(fewest, "image", "images")
    return f"A category has only {images} in a part, too few to measure the model by. {advice}"
