"""`score`: the predictions for the images of a directory, as tables and pictures."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.formats import data_frame_directory as tables
from train_pytorch_model.formats.listing import UNLABELLED, comparable
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.image_classifier.predictions import UNKNOWN_LABEL
from train_pytorch_model.inference.explain import explain
from train_pytorch_model.inference.predict import PredictedBatch, predict, report_unreadable_images
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality import to_label
from train_pytorch_model.quality.to_label import MostUncertain
from train_pytorch_model.reports.explained_page import EXPLAINED, render_explained

UNKNOWN = -1  # the target of an image without a category that the model knows
NUM_SHOWN = 10


@dataclass(frozen=True)
class ScoreOptions:
    """What is written about the images."""

    top_k: int | None = None  # the most probable categories of each image in the CSV; None for all
    embeddings: str | None = (
        None  # dtype of the features before the last layer; None for no file of them
    )
    num_to_label: int = 0  # the images to propose for labelling, at most; 0 for no file of them
    num_to_explain: int = 0  # how many of the least certain images to explain; 0 for no page
    threshold: float = math.inf  # the energy above which an image is labelled `unknown`


@dataclass
class ScoreSummary:
    """What came out of scoring."""

    images: int = 0
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
    index_of = {comparable(name): index for index, name in enumerate(inputs.spec.categories)}
    known = [index_of.get(comparable(name), UNKNOWN) for name in inputs.images.categories]
    # (N,): the index of each image's category in the model; those without a category have the index
    # -1.
    targets = np.array([*known, UNKNOWN])[inputs.images.class_indices]
    if options.num_to_label and (targets != UNKNOWN).all():
        raise ParameterError(
            f"{parameter('rank_by')} proposes images to label, but every image of"
            f" {inputs.images.root} has a"
            " category that the model knows. Give images without one."
        )
    batches = predict(inputs, "Scoring", world, hashed=False)
    if not world.is_main:
        next(batches, None)  # predict with the main process, which alone gets them
        return None
    return _write_scores(inputs, targets, output, options, world.device, batches)


def _write_scores(
    inputs: ScoringInputs,
    targets: np.ndarray,
    output: Path,
    options: ScoreOptions,
    device: torch.device,
    batches: Iterator[PredictedBatch],
) -> ScoreSummary:
    images, categories = inputs.images, inputs.spec.categories
    rows = enumerate(images.read_rows())
    has_originals = any(original for original, _ in islice(images.read_rows(), 1))
    scored, unreadable = ScoreSummary(), dict[int, str]()
    uncertain, to_explain = (
        MostUncertain(options.num_to_label),
        MostUncertain(options.num_to_explain),
    )
    with (
        writing_directory(output, tables.META_CONTENT, "scored_dataset") as root,
        tables.writing_scores(
            root, images.columns, categories, options.top_k, has_originals
        ) as writer,
        tables.RowGroups(root / tables.EMBEDDINGS, tables.EMBEDDINGS_GROUP_BYTES) as embeddings,
    ):
        for batch in batches:
            unreadable |= batch.unreadable
            if len(batch.indices) == 0:
                continue
            names = [images.file_names[index] for index in batch.indices]
            read_rows = (
                next(row for number, row in rows if number == index) for index in batch.indices
            )
            originals, values = zip(*read_rows, strict=True)
            is_unknown = batch.energies > options.threshold
            try:
                writer.write(names, values, batch.probabilities, originals, is_unknown)
            except MalformedFileError as error:
                raise InvalidDatasetError(images.title, str(error)) from error
            if options.embeddings:
                tables.write_embeddings(embeddings, names, batch.features, options.embeddings)
            if options.num_to_label:
                is_open = targets[batch.indices] == UNKNOWN
                uncertain.add(
                    batch.indices[is_open], batch.probabilities[is_open], batch.features[is_open]
                )
            if options.num_to_explain:
                to_explain.add(batch.indices, batch.probabilities, batch.features)
            predicted = batch.probabilities.argmax(axis=1)
            scored.images += len(names)
            scored.strange += int(is_unknown.sum())
            scored.labelled += int((targets[batch.indices] != UNKNOWN).sum())
            scored.correct += int((targets[batch.indices] == predicted).sum())
            answers = zip(
                names, predicted, batch.probabilities.max(axis=1), is_unknown, strict=True
            )
            for name, index, probability, is_strange in islice(
                answers, NUM_SHOWN - len(scored.first)
            ):
                label = UNKNOWN_LABEL if is_strange else categories[index]
                scored.first.append((name, label, float(probability)))
        # Raises if none of the images can be read, now or before.
        report_unreadable_images(inputs, unreadable, root)
        if options.num_to_label:
            to_label.write_to_label(root, list(uncertain.ranked()), images, categories)
        if options.num_to_explain:
            network, shown = (
                build_model(inputs.model, categories).to(device),
                to_explain.by_margin(),
            )
            heats = explain(
                network, inputs.spec, images, np.array([each.index for each in shown], np.int64)
            )
            page = render_explained(inputs.spec, images, shown, heats)
            (root / EXPLAINED).write_text(page, encoding="utf-8")
    is_foreign = (targets == UNKNOWN) & (images.class_indices != UNLABELLED)
    is_foreign[list(unreadable)] = False
    counts = np.bincount(images.class_indices[is_foreign])
    scored.unknown = {
        images.categories[index]: int(counts[index]) for index in np.flatnonzero(counts)
    }
    return scored
