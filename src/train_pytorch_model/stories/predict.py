"""Predict every image of a directory, batch by batch, to write what is predicted or how good that
is.
"""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from train_pytorch_model.data import loader as loading
from train_pytorch_model.data.cache import NO_CACHES, CachePlan, Caches, open_caches
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats import data_frame_directory as tables
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import UNLABELLED, comparable
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.image_classifier.classifier import BATCH_SIZE, ImageClassifier
from train_pytorch_model.image_classifier.predictions import UNKNOWN_LABEL
from train_pytorch_model.inputs.bad_images import list_left_out, without_bad_images
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.inputs.twins import NUM_BYTES, read_image_hashes
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.system import release_freed_memory
from train_pytorch_model.measures import data_quality, evaluation
from train_pytorch_model.measures import evaluation_directory as directory
from train_pytorch_model.measures.data_quality import MostUncertain
from train_pytorch_model.measures.evaluation import Evaluation, Outcomes, outcomes_of
from train_pytorch_model.measures.time_budget import duration
from train_pytorch_model.networks.models import build_model
from train_pytorch_model.pages.page import EXPLAINED, galleries_of, render_explained
from train_pytorch_model.pages.results import files_of_cells, render
from train_pytorch_model.stories.pictures import explain
from train_pytorch_model.words.errors import InvalidDatasetError, ParameterError, counted, parameter

LOG_EVERY_S = 30.0  # a line in the log of a job
RELEASE_EVERY = 64  # batches: 1 % of the time at 2,000 images/s, less where images are larger

UNKNOWN = -1  # the target of an image without a category that the model knows
NUM_SHOWN = 10


@dataclass(frozen=True)
class Predicted:
    """The predictions for one batch."""

    indices: (
        np.ndarray
    )  # (B,), int64: which images of the dataset, ascending over all batches; B may be 0
    probabilities: np.ndarray  # (B, C), float64; each row sums to one; C categories of the model
    features: (
        np.ndarray
    )  # (B, F), float32: what the last layer gets of each image; (0, 0) for no images
    energies: np.ndarray  # (B,), float64: how unlike the training images they are
    rejected: dict[
        int, str
    ]  # images that could not be read: index → reason. They are not in the batch.
    hashes: (
        np.ndarray
    )  # (B, 16), uint8: the perceptual hashes of the images; zeros if they are not wanted


def predict(inputs: ScoringInputs, title: str, world: World, hashed: bool) -> Iterator[Predicted]:
    """Predict all images on all processes; yield all batches, in image order, on the main one, else
    none.

    `title` says what for, such as `Scoring`; `hashed` computes perceptual hashes, too. Raises
    `InvalidModelDirectoryError` if weights do not fit, or probabilities are not finite.
    """
    images, spec = inputs.images, inputs.spec
    for warning in inputs.warnings if world.is_main else ():
        logger.warning(warning)
    classifier = ImageClassifier(spec, build_model(inputs.model, spec.categories), world.device)
    size = f"{spec.framing.height} x {spec.framing.width} px ({inputs.size_reason})"
    logger.info(
        f"{title} {counted(len(images), 'image', 'images')} at {size},"
        f" {counted(len(spec.categories), 'category', 'categories')}, on {world.size} x"
        f" {world.device.type}"
    )
    # A cache for hashes alone, of this process.
    hashing = CachePlan(int(images.rows[-1]) + 1, 0, 0, "", loading.num_readers(world))
    alone = World(0, 1, 0, 1, world.device)
    rounds = math.ceil(
        len(images) / (BATCH_SIZE * world.size)
    )  # in the last, a process may have no batch
    with (
        open_caches(hashing, alone) if hashed else nullcontext(NO_CACHES) as caches,
        loading.start_readers(world) as readers,
        loading.Loader(world.cores, readers) as loader,
        progress_bar(len(images), title) as bar,
    ):
        if readers is not None:
            readers.share(caches.shared)
        started_at = logged_at = time.perf_counter()
        done = 0
        local = _predict_local_images(classifier, images, loader, world, caches)
        for number in range(rounds):
            if number % RELEASE_EVERY == 0:
                release_freed_memory()
            for predicted in world.gather_on_main(list(islice(local, 1))):
                finite = np.isfinite(predicted.probabilities).all(axis=1)
                if not finite.all():
                    name = images.file_names[int(predicted.indices[finite.argmin()])]
                    raise inputs.model.error(
                        "its weights give probabilities that are not finite, for example for"
                        f" {name!r}.",
                        "Train it again.",
                    )
                yield predicted
                count = len(predicted.indices) + len(predicted.rejected)
                bar.advance(count)
                done += count
                if (now := time.perf_counter()) - logged_at >= LOG_EVERY_S:
                    logged_at, rate = now, done / (now - started_at)
                    bar.log(
                        done, f"ETA {duration((len(images) - done) / rate)}", f"{rate:.1f} images/s"
                    )


def _predict_local_images(
    classifier: ImageClassifier,
    images: ImageDirectory,
    loader: loading.Loader,
    world: World,
    caches: Caches,
) -> Iterator[Predicted]:
    """Predict this process's batches, without communicating with the others."""
    framing = classifier.spec.framing
    plan = loading.plan_validation(len(images), BATCH_SIZE, world.rank, world.size)
    read = loading.read_for_inference(images, framing, caches.training)
    for batch in loader.batches(
        loading.Pass("prediction", plan, read, images.class_indices, framing)
    ):
        features, energies = np.empty((0, 0)), np.empty(0)
        probabilities = np.empty((0, len(classifier.spec.categories)))
        if len(batch.indices):
            pixels = batch.images.permute(0, 2, 3, 1)
            features, probabilities, energies = classifier.predict_with_features(pixels)
        hashes = np.zeros((len(batch.indices), NUM_BYTES), np.uint8)
        if len(caches.hashes):
            hashes = caches.hashes[images.rows[batch.indices]]
        yield Predicted(batch.indices, probabilities, features, energies, batch.rejected, hashes)


def report_bad_images(inputs: ScoringInputs, rejected: dict[int, str], root: Path) -> int:
    """Warn of images left out before and now, list and count them.

    May raise `InvalidDatasetError`.
    """
    _, late = without_bad_images(inputs.images, rejected, inputs.is_limited)
    bad_images = [*inputs.bad_images, *late]
    list_left_out(root, bad_images)
    return len(bad_images)


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
class Scored:
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
) -> Scored | None:
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
    batches: Iterator[Predicted],
) -> Scored:
    images, categories = inputs.images, inputs.spec.categories
    rows = enumerate(images.read_rows())
    has_originals = any(original for original, _ in islice(images.read_rows(), 1))
    scored, rejected = Scored(), dict[int, str]()
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
            rejected |= batch.rejected
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
        # Images rejected now are added to those rejected before; if all are, nothing is left.
        report_bad_images(inputs, rejected, root)
        if options.num_to_label:
            data_quality.write_to_label(root, list(uncertain.ranked()), images, categories)
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
    is_foreign[list(rejected)] = False
    counts = np.bincount(images.class_indices[is_foreign])
    scored.unknown = {
        images.categories[index]: int(counts[index]) for index in np.flatnonzero(counts)
    }
    return scored


def evaluate(inputs: ScoringInputs, output: Path, world: World) -> Evaluation | None:
    """Write the evaluation of all readable images, which have the categories of the model.

    Called on all processes; the main one writes. Raises `InvalidModelDirectoryError` for weights
    that do not fit, `InvalidDatasetError` if too many images turn out to be unreadable,
    `OutputDirectoryError`.
    """
    batches = predict(inputs, "Evaluating", world, hashed=True)
    if not world.is_main:
        next(batches, None)  # predict with the main process, which alone gets them
        return None
    spec, images = inputs.spec, inputs.images
    rejected: dict[int, str] = {}
    parts: list[tuple[Outcomes, np.ndarray, np.ndarray]] = []
    with writing_directory(output, directory.META_CONTENT, "output") as root:
        for batch in batches:
            targets = images.class_indices[batch.indices]
            parts.append((outcomes_of(targets, batch.probabilities), batch.indices, batch.hashes))
            rejected |= batch.rejected
        found, numbers, hashes = zip(*parts, strict=True)
        outcomes, indices = evaluation.join(found), np.concatenate(numbers)
        left_out = report_bad_images(inputs, rejected, root)
        evaluated = evaluation.evaluate(outcomes, len(spec.categories))
        known, is_hit = read_image_hashes(inputs.model.root), outcomes.target_ranks == 0
        familiar = data_quality.compare_with_training(known, np.concatenate(hashes), is_hit)
        if seen := familiar.describe() if familiar else "":
            logger.warning(seen)
        mistakes = directory.prediction_rows(outcomes, evaluated.mistakes, images, indices)
        directory.write_numbers(root, evaluated, spec.categories, mistakes, left_out, familiar)
        network = build_model(inputs.model, spec.categories).to(world.device)
        heats = partial(explain, network, spec, images)
        rest, colours = f"; all are in {directory.MISTAKES}", spec.framing.colours
        galleries = galleries_of(evaluated, outcomes, images, indices, colours, heats, rest)
        files = files_of_cells(outcomes, images, indices)
        page = render(evaluated, spec, images.root.resolve().name, galleries, files, left_out, seen)
        (root / directory.PAGE).write_text(page, encoding="utf-8")
    return evaluated
