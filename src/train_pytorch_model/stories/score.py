"""`score`: the predictions for the images of a directory, as tables and pictures."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.formats import data_frame_directory as tables
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.seen_images import CONFIDENCE, SEEN_IMAGES, seen_table
from train_pytorch_model.image_classifier.predictions import (
    ASPECT_RATIO,
    BRIGHTNESS,
    ENERGY,
    PIXELS,
    UNKNOWN_LABEL,
)
from train_pytorch_model.image_classifier.seen import shape_of
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inference.predict import PredictedBatch, predict, report_unreadable_images
from train_pytorch_model.inputs.given_labels import GivenLabels
from train_pytorch_model.inputs.headers import MAX_HEADERS
from train_pytorch_model.inputs.refuse_lists import refuse_lists
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.quality.to_label import MostUncertain, num_candidates, write_to_label

NUM_SHOWN = 10
NO_CATEGORY = "(none)"  # of the model, where images have any number of them


@dataclass(frozen=True)
class ScoreOptions:
    """What is written about the images."""

    top_k: int | None = None  # the most probable categories of each image in the CSV; None for all
    # The dtype of the features before the last layer; None for no file of them.
    embeddings: str | None = None
    num_to_label: int = 0  # the images to propose for labelling, at most; 0 for no file of them
    threshold: float = math.inf  # the energy above which an image is labelled `unknown`
    overwrite: bool = False  # whether to replace scores in the output


@dataclass
class ScoreSummary:
    """What came out of scoring."""

    measure: str  # what the fraction of correct images is called in a sentence
    images: int = 0  # that can be read
    unreadable: int = 0
    labelled: int = 0  # images with a category that the model knows
    correct: int = 0
    strange: int = 0  # images that are answered with `unknown`
    unknown: dict[str, int] = field(default_factory=dict)  # unknown category → number of images
    first: list[tuple[str, str, float]] = field(default_factory=list)
    """(file, predicted category, its probability) of at most `NUM_SHOWN` images."""


def score(
    inputs: ScoringInputs, output: Path, options: ScoreOptions, world: World
) -> ScoreSummary | None:
    """Write the scored dataset of all readable images.

    Called on all processes; the main one writes.

    Raises `InvalidModelDirectoryError` for weights that do not fit, `InvalidDatasetError` for rows
    that form no table, `ParameterError` if no image is left to label, `OutputDirectoryError`.
    """
    given = GivenLabels(inputs)
    if options.num_to_label:
        _check_ranking(inputs, given)
    batches = predict(inputs, "Scoring", world, hashed=False)
    if not world.is_main:
        next(batches, None)  # predict with the main process, which alone gets them
        return None
    return _write_scores(inputs, given, output, options, batches)


def _check_ranking(inputs: ScoringInputs, given: GivenLabels) -> None:
    """Raise `ParameterError` if there is no image between two categories that could be labelled."""
    refuse_lists(
        inputs.spec.answers,
        ParameterError(
            f"{parameter('rank_by')} looks for images between two categories; the model of"
            f" {inputs.model.root} answers any number of them. Leave it out: scores.csv has the"
            " probability of each category."
        ),
    )
    if given.are_known.all():
        raise ParameterError(
            f"{parameter('rank_by')} proposes images to label, but every image of"
            f" {inputs.images.root} has a category that the model knows. Give images without one."
        )


def _write_scores(
    inputs: ScoringInputs,
    given: GivenLabels,
    output: Path,
    options: ScoreOptions,
    batches: Iterator[PredictedBatch],
) -> ScoreSummary:
    """Write the scored dataset on the main process."""
    images = inputs.images
    categories = inputs.spec.categories
    has_originals = any(original for original, _ in islice(images.read_rows(), 1))
    summary = ScoreSummary(inputs.spec.answers.measure)
    unreadable: dict[int, str] = {}
    to_label = MostUncertain(num_candidates(options.num_to_label))
    with (
        writing_directory(
            output, tables.META_CONTENT, "scored_dataset", overwrite=options.overwrite
        ) as root,
        tables.writing_scores(
            root,
            images.columns,
            categories,
            options.top_k,
            has_originals,
            inputs.spec.answers,
        ) as writer,
        tables.RowGroups(root / tables.EMBEDDINGS, tables.EMBEDDINGS_GROUP_BYTES) as embeddings,
        tables.RowGroups(root / SEEN_IMAGES, tables.EMBEDDINGS_GROUP_BYTES) as seen,
    ):
        shapes = _Shapes(images)
        rows = _Rows(images)
        for batch in batches:
            unreadable |= batch.unreadable
            if len(batch.indices) == 0:
                continue
            names = [images.file_names[index] for index in batch.indices]
            is_unknown = batch.energies > options.threshold
            originals, values = rows.read(batch.indices)
            try:
                writer.write(names, values, batch.probabilities, originals, is_unknown)
            except MalformedFileError as error:
                raise InvalidDatasetError(images.title, str(error)) from error
            seen.write(_seen_table(names, batch, categories, shapes.read(batch.indices)))
            if options.embeddings:
                tables.write_embeddings(embeddings, names, batch.features, options.embeddings)
            if options.num_to_label:
                is_open = ~given.are_known[batch.indices]
                to_label.add(
                    batch.indices[is_open], batch.probabilities[is_open], batch.features[is_open]
                )
            summary.images += len(batch.indices)
            summary.labelled += int(given.are_known[batch.indices].sum())
            summary.correct += given.count_correct(batch.indices, batch.probabilities)
            summary.strange += int(is_unknown.sum())
            _show_first(summary, names, batch.probabilities, is_unknown, inputs.spec)
        # Raises if none of the images can be read, now or before.
        summary.unreadable = report_unreadable_images(inputs, unreadable, root)
        if options.num_to_label:
            ranked = list(islice(to_label.ranked(), options.num_to_label))
            write_to_label(root, ranked, images, categories)
    summary.unknown = given.unknown_categories(unreadable)
    return summary


class _Rows:
    """The listed rows of a data set, which are read once, as its images are predicted."""

    def __init__(self, images: ImageDirectory) -> None:
        self._rows = enumerate(images.read_rows())

    def read(self, indices: np.ndarray) -> tuple[Sequence[str], Sequence[dict[str, Any]]]:
        """Return the names of the files before they were copied, and the values, of these images.

        The indices ascend, from one call to the next, too.
        """
        rows = (next(row for number, row in self._rows if number == index) for index in indices)
        originals, values = zip(*rows, strict=True)
        return originals, values


class _Shapes:
    """The aspect ratios and sizes of an even sample of the images, by their headers."""

    def __init__(self, images: ImageDirectory) -> None:
        self._images = images
        self._sample = set(evenly_spaced(len(images), MAX_HEADERS).tolist())

    def read(self, indices: np.ndarray) -> np.ndarray:
        """Return the aspect ratio and the pixels of images: (B, 2), float64, NaN if not sampled."""
        shapes = np.full((len(indices), 2), np.nan)
        for row, index in enumerate(indices.tolist()):
            if index in self._sample:
                shapes[row] = shape_of(self._images.path(index))
        return shapes


def _seen_table(
    names: Sequence[str], batch: PredictedBatch, categories: Sequence[str], shapes: np.ndarray
) -> pa.Table:
    """Return what the model saw in the images of a batch, whose shapes are (B, 2)."""
    predicted = batch.probabilities.argmax(axis=1)
    features = {
        CONFIDENCE: batch.probabilities.max(axis=1),
        ENERGY: batch.energies,
        BRIGHTNESS: batch.brightness,
        ASPECT_RATIO: shapes[:, 0],
        PIXELS: shapes[:, 1],
    }
    return seen_table(names, [categories[index] for index in predicted], features)


def _show_first(
    summary: ScoreSummary,
    names: Sequence[str],
    probabilities: np.ndarray,
    is_unknown: np.ndarray,
    spec: ClassifierSpec,
) -> None:
    """Add images of a batch to the first ones, until these are `NUM_SHOWN`."""
    num_new = min(NUM_SHOWN - len(summary.first), len(names))
    answers = spec.answers.texts(probabilities[:num_new], spec.categories)
    for row, answer in enumerate(answers):
        label = UNKNOWN_LABEL if is_unknown[row] else answer or NO_CATEGORY
        summary.first.append((names[row], label, float(probabilities[row].max())))
