"""Open what is reviewed, check where the page goes, and write it."""

import os
from pathlib import Path

from train_pytorch_model.config.table_options import BY_DEFAULT, TableOptions
from train_pytorch_model.config.wording import display_name, out_of_range, parameter
from train_pytorch_model.datasets.conversion import is_archive
from train_pytorch_model.datasets.correcting import open_corrections
from train_pytorch_model.datasets.reviewed_images import open_reviewed
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import InvalidDatasetError, OutputDirectoryError, ParameterError
from train_pytorch_model.formats.corrections import CORRECTIONS
from train_pytorch_model.formats.listing import UNLABELLED
from train_pytorch_model.formats.writing import write_durably
from train_pytorch_model.image_classifier.classifier import best_device
from train_pytorch_model.inputs import scoring
from train_pytorch_model.inputs.refuse_lists import refuse_lists
from train_pytorch_model.machine.command_lines import correction_command
from train_pytorch_model.quality.review_order import MAX_REVIEWED
from train_pytorch_model.reports.review_page import is_review
from train_pytorch_model.reviewing.inputs import ReviewInputs
from train_pytorch_model.stories.review import decided_categories, review


def write_review(
    model: Path,
    dataset: Path,
    output: Path,
    columns: TableOptions = BY_DEFAULT,
    corrections: Path | None = None,
    num_images: int = MAX_REVIEWED,
) -> Path | None:
    """Write the page of the images that most need a decision.

    Returns the folder of the images if none of them has a category of the model: the decisions
    about new images belong into it.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`, `OutputDirectoryError`,
    `ParameterError`.
    """
    if not 0 < num_images <= MAX_REVIEWED:
        rule = f"from 1 to {MAX_REVIEWED}"
        name = display_name("num_images")
        raise ParameterError(out_of_range(name, rule, parameter("num_images"), num_images))
    _check_output(output)
    opened = scoring.open_trained(model)
    refuse_lists(
        opened.answers,
        opened.error(
            "it answers with any number of categories, and a review gives each image one.",
            "`suspects.csv` in it lists what is probably wrong in the table of the images.",
        ),
    )
    if is_archive(dataset):
        raise InvalidDatasetError(
            f'{scoring.DATASET} "{dataset}"', "it is an archive.", "Unpack it, and name its folder."
        )
    own = model / CORRECTIONS
    earlier = open_corrections(corrections or (own if own.exists() else None))
    reviewed = open_reviewed(dataset, opened.categories, columns, decided_categories(earlier))
    inputs = scoring.inputs_of(opened, reviewed.images)
    is_new = bool((reviewed.class_indices == UNLABELLED).all())
    new_images = reviewed.images.root if is_new else None
    reviewing = ReviewInputs(
        scoring=inputs,
        reviewed=reviewed,
        earlier=earlier,
        size=num_images,
        folder=output.absolute().parent,
        command=_command(new_images or dataset, has_categories=not is_new),
    )
    page = review(reviewing, World(0, 1, 0, 1, best_device()))
    try:
        write_durably(output, page.encode())
    except OSError as error:
        raise OutputDirectoryError(f"{parameter('output')} {output}: {error.strerror}.") from error
    return new_images


def _command(folder: Path, has_categories: bool) -> str:
    """Return the command that the page tells, without paths of this machine."""
    if folder.is_absolute():
        folder = Path("FOLDER" if has_categories else "NEW-FOLDER")
    return correction_command(folder, has_categories)


def _check_output(output: Path) -> None:
    """Raise `OutputDirectoryError` unless the page can be written there, over no other file."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise OutputDirectoryError(
            f"{parameter('output')} {output} is no page: give it a name that ends in .html."
        )
    if os.path.isdir(output) or not os.path.isdir(output.absolute().parent):
        what = "is a directory" if os.path.isdir(output) else "is in no existing directory"
        raise OutputDirectoryError(f"{parameter('output')} {output} {what}. Name a file.")
    if os.path.exists(output) and not is_review(output):
        raise OutputDirectoryError(
            f"{parameter('output')} {output} is there already, and no page of this program."
            " Name another file."
        )
