"""`evaluate`: how good a model is on labelled images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from train_pytorch_model.datasets.grouping import hashes_of_files
from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation import directory, metrics
from train_pytorch_model.evaluation.comparison import Comparison, compare_evaluations
from train_pytorch_model.evaluation.metrics import outcomes_of
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.evaluation.outcomes import outcomes_by
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.race_record import RaceRecord
from train_pytorch_model.formats.writing import write_csv
from train_pytorch_model.inference.explain import explain
from train_pytorch_model.inference.predict import (
    PredictedBatch,
    predict,
    report_unreadable_images,
)
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.identical_files import MAX_COMPARED, find_identical
from train_pytorch_model.quality.perceptual_hash import read_image_hashes
from train_pytorch_model.quality.training_look_alikes import compare_with_training
from train_pytorch_model.quality.twins import TWINS, TwinRow, find_twins, twins_table
from train_pytorch_model.reports.differences import differences_gallery
from train_pytorch_model.reports.evaluation_page import EvaluationReport, render_evaluation
from train_pytorch_model.reports.galleries import twins_gallery
from train_pytorch_model.reports.page_links import PageLink, links_to, pages_about
from train_pytorch_model.reports.review_page import review_beside
from train_pytorch_model.reports.view import view_of


@dataclass(frozen=True)
class Training:
    """What is known of the training of a model, besides its directory."""

    images: ImageDirectory  # those whose hashes are in the model's directory, in the same order
    validation: ImageDirectory  # which has chosen the epoch
    report: str  # the page about it, relative to the evaluation's
    race: RaceRecord | None = None  # how its network was chosen, if by a race


@dataclass(frozen=True)
class Other:
    """Another model and its predictions of the same images."""

    inputs: ScoringInputs
    batches: Iterator[PredictedBatch]


def evaluate(
    inputs: ScoringInputs,
    output: Path,
    world: World,
    training: Training | None = None,
    after_batch: Callable[[], None] = lambda: None,
    overwrite: bool = False,
) -> AnyEvaluation | None:
    """Write the evaluation of all readable images, which have the categories of the model.

    What is known of the `training` is compared and linked, and the model is compared with the
    inputs' other one, if any, on the same images. Called on all processes; the main one writes, and
    calls `after_batch`. Raises `InvalidModelDirectoryError` for weights that do not fit,
    `InvalidDatasetError` if too many images turn out to be unreadable, `OutputDirectoryError`.
    """
    batches = predict(inputs, "Evaluating", world, hashed=True)
    other_batches: Iterator[PredictedBatch] = iter(())
    against = inputs.against
    if against is not None:
        other_batches = predict(against, "Comparing", world, hashed=False)
    if not world.is_main:
        next(batches, None)  # predict with the main process, which alone gets them
        next(other_batches, None)
        return None
    content = directory.META_CONTENT
    with writing_directory(output, content, "output", overwrite=overwrite) as root:
        watched = _call_after_each(batches, after_batch)
        other = None if against is None else Other(against, other_batches)
        links = [] if training else _links(inputs.model.root, output)
        return _write_evaluation(inputs, root, world, watched, training, other, links)


def _links(model: Path, output: Path) -> list[PageLink]:
    """Return links from an evaluation to what else is there about a model."""
    pages = pages_about(model)
    for folder in (output.absolute().parent, model.absolute().parent):
        review = review_beside(folder, model)
        if review is not None:
            pages["Review of the images"] = review
    return links_to(pages, output.absolute())


def _call_after_each(
    batches: Iterator[PredictedBatch], after_batch: Callable[[], None]
) -> Iterator[PredictedBatch]:
    for batch in batches:
        yield batch
        after_batch()


def _write_evaluation(
    inputs: ScoringInputs,
    root: Path,
    world: World,
    batches: Iterator[PredictedBatch],
    training: Training | None,
    other: Other | None,
    links: Sequence[PageLink],
) -> AnyEvaluation:
    spec = inputs.spec
    evaluated, hashes, unreadable = _collect(inputs, batches)
    num_unreadable = report_unreadable_images(inputs, unreadable, root)
    evaluation = evaluated.outcomes.evaluate(len(spec.categories), spec.thresholds)

    training_hashes = read_image_hashes(inputs.model.root)
    look_alikes = compare_with_training(training_hashes, hashes, evaluated.outcomes.is_hit)
    about_look_alikes = ""
    if look_alikes:
        about_look_alikes = look_alikes.describe(measure=evaluation.measure)
    if about_look_alikes:
        logger.warning(about_look_alikes)

    race = training.race if training else None
    comparison = None if other is None else _compare(other, evaluated)
    directory.write_evaluation(
        root, evaluation, evaluated, num_unreadable, look_alikes, race, comparison
    )
    network = build_model(inputs.model, spec.categories).to(world.device)
    view = view_of(evaluation)
    galleries = view.galleries(
        evaluation,
        evaluated,
        spec.framing.colours,
        partial(explain, network, spec, inputs.images),
        where_all_are=f"; all are in {directory.MISTAKES}",
    )
    if comparison is not None:
        logger.info(f"Compared with {comparison.name}: {comparison.describe()}")
        galleries = [
            *differences_gallery(comparison, evaluated, spec.framing.colours),
            *galleries,
        ]
    data_sets = [inputs.images]
    if training is None:
        twins = _find_twins_within(evaluated, hashes)
    else:
        twins = _find_twins(training, evaluated, training_hashes, hashes)
        data_sets += [training.images, training.validation]
    galleries += twins_gallery(twins, data_sets, spec.framing.colours, view.correcting)
    if twins:
        write_csv(root / TWINS, twins_table(twins))
    page = render_evaluation(
        EvaluationReport(
            spec=spec,
            dataset_name=inputs.images.root.resolve().name,
            evaluation=evaluation,
            galleries=galleries,
            files=view.files(evaluated),
            num_unreadable=num_unreadable,
            look_alikes=about_look_alikes,
            training_report=training.report if training else "",
            comparison=comparison,
            links=links,
        )
    )
    (root / directory.PAGE).write_text(page, encoding="utf-8")
    return evaluation


def _compare(other: Other, evaluated: EvaluatedImages) -> Comparison:
    """Return the comparison with another model, which has the same categories in some order."""
    categories = evaluated.images.categories
    number_of = {name: index for index, name in enumerate(other.inputs.spec.categories)}
    columns = [number_of[name] for name in categories]
    batches = list(other.batches)
    indices = np.concatenate([batch.indices for batch in batches])
    probabilities = np.concatenate([batch.probabilities for batch in batches])
    row_of = {index: row for row, index in enumerate(indices.tolist())}
    rows = [row_of[index] for index in evaluated.indices.tolist()]
    targets = evaluated.images.targets(evaluated.indices)
    outcomes = outcomes_of(targets, probabilities[np.ix_(rows, columns)])
    others = EvaluatedImages(evaluated.images, evaluated.indices, outcomes)
    name = other.inputs.model.root.resolve().name
    evaluation = metrics.evaluate(outcomes, len(categories))
    return compare_evaluations(name, evaluated, others, evaluation)


def _find_twins(
    training: Training,
    evaluated: EvaluatedImages,
    training_hashes: np.ndarray,
    hashes: np.ndarray,
) -> Sequence[TwinRow]:
    """Return the pairs of an evaluated image and one of training, of validation, or another one."""
    images = evaluated.images.select(evaluated.indices)
    of_training: Sequence[TwinRow] = ()
    of_validation: Sequence[TwinRow] = ()
    is_compared = len(training_hashes) == len(training.images)
    if is_compared:
        of_training = _pairs_with(training.images, training_hashes, images, hashes)
    if len(training.validation) <= MAX_COMPARED:
        validation_hashes = hashes_of_files(training.validation.paths())
        of_validation = _pairs_with(training.validation, validation_hashes, images, hashes)
    if is_compared:  # then the pairs within the evaluated images are among these
        of_validation = [row for row in of_validation if row.port != row.other_port]
    return [*of_training, *of_validation]


def _find_twins_within(evaluated: EvaluatedImages, hashes: np.ndarray) -> Sequence[TwinRow]:
    """Return the pairs among the evaluated images, unless there are too many of these."""
    images = evaluated.images.select(evaluated.indices)
    if len(images) > MAX_COMPARED:
        return []
    nothing = images.select(np.empty(0, np.int64))
    return _pairs_with(nothing, hashes[:0], images, hashes)


def _pairs_with(
    known: ImageDirectory, known_hashes: np.ndarray, images: ImageDirectory, hashes: np.ndarray
) -> Sequence[TwinRow]:
    """Return the pairs of an image and another one, or a known one."""
    both = np.concatenate([known_hashes, hashes])
    rows, _ = find_twins(known, images, find_identical(known, images).pairs, both, len(known))
    return rows


def _collect(
    inputs: ScoringInputs, batches: Iterator[PredictedBatch]
) -> tuple[EvaluatedImages, np.ndarray, dict[int, str]]:
    """Return the images with their outcomes, their hashes (N, 16), and the unreadable ones."""
    outcomes = []
    indices = []
    hashes = []
    unreadable: dict[int, str] = {}
    for batch in batches:
        targets = inputs.images.targets(batch.indices)
        outcomes.append(outcomes_by(inputs.spec.answers, targets, batch.probabilities))
        indices.append(batch.indices)
        hashes.append(batch.hashes)
        unreadable |= batch.unreadable
    evaluated = EvaluatedImages(inputs.images, np.concatenate(indices), metrics.join(outcomes))
    return evaluated, np.concatenate(hashes), unreadable
