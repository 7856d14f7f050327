"""Write the predictions for every image of a directory."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.data_frame_directory import META_CONTENT, writing_scores
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import comparable
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.stories.predict import Predicted, predict_and_write, report_bad_images
from train_pytorch_model.words.errors import InvalidDatasetError

OUTPUT = "scored_dataset"
TITLE = "Scoring"


@dataclass(frozen=True)
class Scored:
    """The number of images scored, of those with a category that the model knows, and of the correct ones."""

    images: int
    labelled: int
    correct: int


def score(inputs: ScoringInputs, output: Path, top_k: int | None, world: World) -> Scored | None:
    """Write the scored dataset of all readable images. Called on all processes; the main one writes.

    With `top_k`, the CSV has only that many of the most probable categories of each row.

    Raises `InvalidModelDirectoryError` for weights that do not fit, `InvalidDatasetError` for rows that form
    no table, `OutputDirectoryError`.
    """
    return predict_and_write(inputs, TITLE, world, functools.partial(_write, inputs, output, top_k))


def _write(
    inputs: ScoringInputs, output: Path, top_k: int | None, predictions: Iterable[Predicted]
) -> Scored:
    images, categories = inputs.images, inputs.spec.categories
    rows = enumerate(images.read_rows())
    rejected: dict[int, str] = {}
    correct = labelled = 0
    with (
        writing_directory(output, META_CONTENT, OUTPUT) as root,
        writing_scores(root, images.columns, categories, top_k) as writer,
    ):
        for batch in predictions:
            rejected |= batch.rejected
            if len(batch.indices) == 0:
                continue
            names = [images.file_names[index] for index in batch.indices]
            read_rows = [next(row for number, row in rows if number == index) for index in batch.indices]
            try:
                writer.write(names, read_rows, batch.probabilities)
            except MalformedFileError as error:
                raise InvalidDatasetError(images.title, str(error)) from error
            known, right = _count_correct(images, categories, batch)
            labelled, correct = labelled + known, correct + right
        # Images rejected now are added to those rejected before; too many of them leave no output at all.
        report_bad_images(inputs, rejected, root)
    return Scored(len(images) - len(rejected), labelled, correct)


def _count_correct(images: ImageDirectory, categories: tuple[str, ...], batch: Predicted) -> tuple[int, int]:
    """The number of images whose category the model knows, and of those it got right, matched by name."""
    if not images.categories:
        return 0, 0
    targets: np.ndarray = images.class_indices[batch.indices]
    true_names = [comparable(images.categories[target]) for target in targets.tolist()]
    predicted = [comparable(categories[index]) for index in batch.probabilities.argmax(axis=1)]
    known = set(map(comparable, categories))
    return (
        sum(name in known for name in true_names),
        sum(name == other for name, other in zip(true_names, predicted, strict=True)),
    )
