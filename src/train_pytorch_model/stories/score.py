"""Write the predictions for every image of a directory."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.data_frame_directory import (
    EMBEDDINGS,
    EMBEDDINGS_GROUP_BYTES,
    META_CONTENT,
    RowGroups,
    write_embeddings,
    writing_scores,
)
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import UNLABELLED, comparable
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.image_classifier.unknown import UNKNOWN_LABEL
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.measures.uncertainty import Candidate, MostUncertain, write_to_label
from train_pytorch_model.pages.page import EXPLAINED, render_explained
from train_pytorch_model.stories.explain import explain_trained
from train_pytorch_model.stories.predict import Predicted, predict_and_write, report_bad_images
from train_pytorch_model.words.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.words.wording import parameter

OUTPUT = "scored_dataset"
TITLE = "Scoring"
UNKNOWN = -1
NUM_SHOWN = 10


@dataclass(frozen=True)
class ScoreOptions:
    """What is written about the images."""

    top_k: int | None = None
    """The most probable categories of each image in the CSV; None for all."""
    embeddings: str | None = None
    """dtype of the features before the last layer; None for no file of them."""
    num_to_label: int = 0
    """The images to propose for labelling, at most; 0 for no file of them."""
    num_to_explain: int = 0
    """The least certain images to show with what spoke for their categories, at most; 0 for no page."""
    threshold: float = math.inf
    """The energy above which an image is labelled `unknown`."""


@dataclass(frozen=True)
class Scored:
    """What came out of scoring."""

    images: int
    labelled: int
    """Images with a category that the model knows."""
    correct: int
    unknown: dict[str, int]
    """A category that the model does not know → the number of its images."""
    strange: int
    """Images that are answered with `unknown`."""
    first: list[tuple[str, str, float]]
    """(file, predicted category, its probability) of at most `NUM_SHOWN` images."""


def score(inputs: ScoringInputs, output: Path, options: ScoreOptions, world: World) -> Scored | None:
    """Write the scored dataset of all readable images. Called on all processes; the main one writes.

    Raises `InvalidModelDirectoryError` for weights that do not fit, `InvalidDatasetError` for rows that form
    no table, `ParameterError` if no image is left to label, `OutputDirectoryError`.
    """
    targets = _targets(inputs.images, inputs.spec.categories)
    if options.num_to_label and (targets != UNKNOWN).all():
        raise ParameterError(
            f"{parameter('rank_by')} proposes images to label, but every image of {inputs.images.root} has a"
            " category that the model knows. Give images without one."
        )
    write = functools.partial(_write, inputs, targets, output, options, world.device)
    return predict_and_write(inputs, TITLE, world, write)


def _write(
    inputs: ScoringInputs,
    targets: np.ndarray,
    output: Path,
    options: ScoreOptions,
    device: torch.device,
    predictions: Iterable[Predicted],
) -> Scored:
    images, categories = inputs.images, inputs.spec.categories
    rows = enumerate(images.read_rows_with_originals())
    has_originals = any(original for original, _ in islice(images.read_rows_with_originals(), 1))
    rejected: dict[int, str] = {}
    correct = labelled = strange = 0
    first: list[tuple[str, str, float]] = []
    uncertain, to_explain = MostUncertain(options.num_to_label), MostUncertain(options.num_to_explain)
    with (
        writing_directory(output, META_CONTENT, OUTPUT) as root,
        writing_scores(root, images.columns, categories, options.top_k, has_originals) as writer,
        RowGroups(root / EMBEDDINGS, EMBEDDINGS_GROUP_BYTES) as embeddings,
    ):
        for batch in predictions:
            rejected |= batch.rejected
            if len(batch.indices) == 0:
                continue
            names = [images.file_names[index] for index in batch.indices]
            read_rows = [next(row for number, row in rows if number == index) for index in batch.indices]
            originals, values = zip(*read_rows, strict=True)
            try:
                is_unknown = batch.energies > options.threshold
                writer.write(names, values, batch.probabilities, originals, is_unknown)
            except MalformedFileError as error:
                raise InvalidDatasetError(images.title, str(error)) from error
            if options.embeddings:
                write_embeddings(embeddings, names, batch.features, options.embeddings)
            if options.num_to_label:
                is_open = targets[batch.indices] == UNKNOWN
                uncertain.add(batch.indices[is_open], batch.probabilities[is_open], batch.features[is_open])
            if options.num_to_explain:
                to_explain.add(batch.indices, batch.probabilities, batch.features)

            predicted = batch.probabilities.argmax(axis=1)
            strange += int(is_unknown.sum())
            labelled += int((targets[batch.indices] != UNKNOWN).sum())
            correct += int((targets[batch.indices] == predicted).sum())
            shown = zip(names, predicted, batch.probabilities.max(axis=1), is_unknown, strict=True)
            first += [
                (name, UNKNOWN_LABEL if strange_ else categories[index], float(probability))
                for name, index, probability, strange_ in islice(shown, NUM_SHOWN - len(first))
            ]
        # Images rejected now are added to those rejected before; if all are, nothing is left.
        report_bad_images(inputs, rejected, root)
        if options.num_to_label:
            write_to_label(root, list(uncertain.ranked()), images, categories)
        if options.num_to_explain:
            _write_explained(root, inputs, to_explain.by_margin(), device)
    is_foreign = (targets == UNKNOWN) & (images.class_indices != UNLABELLED)
    is_foreign[list(rejected)] = False
    counts = np.bincount(images.class_indices[is_foreign])
    unknown = {images.categories[index]: int(counts[index]) for index in np.flatnonzero(counts)}
    return Scored(len(images) - len(rejected), labelled, correct, unknown, strange, first)


def _write_explained(
    root: Path, inputs: ScoringInputs, candidates: Sequence[Candidate], device: torch.device
) -> None:
    indices = np.array([each.index for each in candidates], np.int64)
    heats = explain_trained(inputs, device, indices)
    page = render_explained(inputs.spec, inputs.images, candidates, heats)
    (root / EXPLAINED).write_text(page, encoding="utf-8")


def _targets(images: ImageDirectory, categories: tuple[str, ...]) -> np.ndarray:
    """(N,), int64: the index of each image's category in the model, matched by name, or `UNKNOWN`."""
    index_of = {comparable(name): index for index, name in enumerate(categories)}
    known = [index_of.get(comparable(name), UNKNOWN) for name in images.categories]
    known.append(UNKNOWN)  # for images without a category, whose index is -1
    targets: np.ndarray = np.array(known)[images.class_indices]
    return targets
