"""`convert`: labelled or unlabelled images as an image directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from train_pytorch_model.config.options import OptionalName, OptionalPath, Switch, shown_as
from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.datasets import conversion
from train_pytorch_model.datasets.correcting import open_corrections
from train_pytorch_model.formats.label_files import LabelFile
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.formats.replacing import IMAGES
from train_pytorch_model.machine.console import logger, set_up


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Convert class folders, an archive, a table or an AutoML list to an ImageDirectory.

    The files of the images stay unchanged."""

    EXAMPLE = "--input flowers.zip --output images"

    input: Path
    (
        "One folder per category, a folder of images, an archive of either, a .csv of file names"
        " and categories,"
        "\n    an AutoML .jsonl or MLTable, or Custom Vision's .json of tagged images."
    )
    output: Path
    """ImageDirectory to write; must be new or empty."""
    labels: OptionalPath = None
    (
        "CSV of file names and categories; by default labels.csv or metadata.csv in the folder, if"
        " any."
    )
    images: OptionalPath = None
    """Folder with the images that a table or an AutoML list names; by default its own."""
    file_column: OptionalName = None
    """Column of the CSV with the file names; by default found by its name."""
    label_column: OptionalName = None
    """Column of the CSV with the categories; by default found by its name."""
    corrections: OptionalPath = None
    """Table of decisions, as `review` saves it: other categories, and images to leave out."""
    overwrite: Switch = False
    """Replace the ImageDirectory in the output, if it is whole, once the new one is complete."""
    merge_copies: Switch = False
    """Make one image of all copies of a file, with the categories of all of them."""
    label_files: Annotated[tuple[LabelFile, ...], shown_as("csv|hugging-face|automl")] = ()
    (
        "Also write the labels as other tools read them: labels.csv, Hugging Face's metadata.jsonl,"
        " AutoML's"
        "\n    MLTable. The input may then be an ImageDirectory, too."
    )
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the input, then convert."""
        set_up(quiet=self.quiet)
        check_apart(self.output, conversion.OUTPUT, self.input, "input")
        check_output(self.output, conversion.OUTPUT, kind=IMAGES, overwrite=self.overwrite)
        logger.info(f"Reading {self.input}")
        corrections = open_corrections(self.corrections)
        labels = conversion.Labels(
            labels=self.labels,
            images=self.images,
            columns=TableOptions(file_column=self.file_column, label_column=self.label_column),
            label_files=self.label_files,
        )
        with conversion.open_source(self.input, self.output, labels) as opened:
            source = conversion.merge_copies(opened) if self.merge_copies else opened
            if corrections:
                source = conversion.correct_source(source, corrections)
            images = source.images
            kind = "without categories"
            if images.categories:
                kind = f"of {len(images.categories):,} categories{images.labels.amount}"
            logger.info(f"Converting {len(images):,} images {kind}")
            written = conversion.convert(source, self.output, self.overwrite, self.label_files)
        logger.info(f"The {written:,} images are in {self.output}")
