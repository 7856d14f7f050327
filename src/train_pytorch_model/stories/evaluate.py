"""`evaluate`: how good a model is on labelled images."""

from functools import partial
from pathlib import Path

import numpy as np

from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation import directory, metrics, tables
from train_pytorch_model.evaluation.metrics import Evaluation, Outcomes, outcomes_of
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.inference.explain import explain
from train_pytorch_model.inference.predict import predict, report_unreadable_images
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.perceptual_hash import read_image_hashes
from train_pytorch_model.quality.training_look_alikes import compare_with_training
from train_pytorch_model.reports.evaluation_page import files_by_cell, render_evaluation
from train_pytorch_model.reports.galleries import prediction_galleries


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
    unreadable: dict[int, str] = {}
    parts: list[tuple[Outcomes, np.ndarray, np.ndarray]] = []
    with writing_directory(output, directory.META_CONTENT, "output") as root:
        for batch in batches:
            targets = images.class_indices[batch.indices]
            parts.append((outcomes_of(targets, batch.probabilities), batch.indices, batch.hashes))
            unreadable |= batch.unreadable
        found, numbers, hashes = zip(*parts, strict=True)
        outcomes, indices = metrics.join(found), np.concatenate(numbers)
        num_unreadable = report_unreadable_images(inputs, unreadable, root)
        evaluated = metrics.evaluate(outcomes, len(spec.categories))
        known, is_hit = read_image_hashes(inputs.model.root), outcomes.target_ranks == 0
        familiar = compare_with_training(known, np.concatenate(hashes), is_hit)
        if seen := familiar.describe() if familiar else "":
            logger.warning(seen)
        mistakes = tables.prediction_rows(outcomes, evaluated.mistakes, images, indices)
        directory.write_numbers(
            root, evaluated, spec.categories, mistakes, num_unreadable, familiar
        )
        network = build_model(inputs.model, spec.categories).to(world.device)
        heats = partial(explain, network, spec, images)
        rest, colours = f"; all are in {directory.MISTAKES}", spec.framing.colours
        galleries = prediction_galleries(evaluated, outcomes, images, indices, colours, heats, rest)
        files = files_by_cell(outcomes, images, indices)
        page = render_evaluation(
            evaluated, spec, images.root.resolve().name, galleries, files, num_unreadable, seen
        )
        (root / directory.PAGE).write_text(page, encoding="utf-8")
    return evaluated
