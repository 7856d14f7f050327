"""What corrections have bought: the corrected model and the earlier one on the same images.

compared.json     {"earlier": "photographs-model", "images": 120, "first_correct": 98, …}: the
                  fields of `PairedTest`, of which the first model is the earlier one
"""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.formats.listing import comparable
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.formats.writing import write_json
from train_pytorch_model.inference.predict import predict
from train_pytorch_model.inputs import scoring
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.machine.console import logger, paragraph
from train_pytorch_model.quality.paired_test import PairedTest, compare_hits

COMPARED = "compared.json"


def tell_improvement(
    earlier: ModelDirectory,
    tested: ScoringInputs,
    evaluation: Evaluation,
    root: Path,
    world: World,
) -> None:
    """Log and write how the `evaluation` of the tested images differs from an earlier model's.

    Raises `InvalidModelDirectoryError`.
    """
    hits = _hits_of(earlier, tested, world)
    if len(hits) != evaluation.images:
        logger.warning("The earlier model is not compared: it cannot read the same test images.")
        return
    now = np.ones(evaluation.images, dtype=bool)
    now[evaluation.mistakes] = False
    test = compare_hits(hits, now)
    paragraph(describe(test, earlier.root.name))
    write_json(root / COMPARED, {"earlier": earlier.root.resolve().name, **asdict(test)})


def describe(test: PairedTest, name: str) -> str:
    """Return what the test says, for people."""
    before = test.first_correct / test.images
    after = test.second_correct / test.images
    verdict = "That is more than chance" if test.is_telling else "That may be chance"
    return (
        f"What the corrections bought: of the same {test.images:,} test images, as corrected,"
        f" {name} recognizes {test.first_correct:,} ({before:.1%}) and this model"
        f" {test.second_correct:,} ({after:.1%}): {test.only_second:,} only this one,"
        f" {test.only_first:,} only the earlier one. {verdict}. {test.about_chance()} (exact"
        " McNemar test)."
    )


def _hits_of(model: ModelDirectory, tested: ScoringInputs, world: World) -> np.ndarray:
    """Return (N,), bool: which of the tested images the model recognizes, by their categories."""
    images = tested.images
    without = replace(images, categories=(), class_indices=np.full(len(images), -1, np.int32))
    inputs = replace(scoring.inputs_of(model, without), warnings=())
    index_of = {comparable(name): index for index, name in enumerate(model.categories)}
    of_image = np.array([index_of.get(comparable(name), -1) for name in images.categories])
    hits = [np.empty(0, bool)]
    for batch in predict(inputs, "Comparing", world, hashed=False):
        targets = of_image[images.class_indices[batch.indices]]
        hits.append(batch.probabilities.argmax(axis=1) == targets)
    return np.concatenate(hits)
