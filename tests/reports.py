"""Synthetic training reports, with any number of categories and epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.model_directories import HALF
from tests.painting import paint
from tests.recipes import decided_recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.evaluation.metrics import Evaluation, evaluate, outcomes_of
from train_pytorch_model.evaluation.time_budget import EpochTimes, budget_of
from train_pytorch_model.formats.image_directory import ImageDirectory, images_of
from train_pytorch_model.formats.listing import Listing, Packer
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.reports.gallery import Card, Fact, Gallery
from train_pytorch_model.reports.pictures import encode
from train_pytorch_model.reports.training_report import Report

SECTIONS = (
    "numbers",
    "curves",
    "confusion",
    "categories",
    "mistakes",
    "calibration",
    "data",
    "time",
    "plan",
    "again",
)
"""The ids of a report's sections, in page order."""


def make_history(losses: Sequence[float]) -> list[dict[str, float]]:
    """The metrics of epochs with these validation losses."""
    return [
        {
            "epoch": epoch,
            "step": 10 * epoch,
            "Train images per second": 100.0 + epoch,
            "Train loss": 2.0 / epoch,
            "Train error": 0.5 / epoch,
            "Valid loss": loss,
            "Top 1 accuracy": 1 - 0.6 / epoch,
            "Top 5 accuracy": 1.0,
            "Learning rate": 0.01 / epoch,
        }
        for epoch, loss in enumerate(losses, start=1)
    ]


def predictions(count: int, images: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Targets (N,) and probabilities (N, C) of random predictions, about two thirds of them
    correct.
    """
    random = np.random.default_rng(seed)
    targets = random.integers(0, count, images)
    predicted = np.where(random.random(images) < 0.66, targets, random.integers(0, count, images))
    confidences = random.uniform(0.5, 1, images)
    probabilities = np.repeat(((1 - confidences) / (count - 1))[:, None], count, axis=1)
    probabilities[np.arange(images), predicted] = confidences
    return targets, probabilities


def evaluation_of(count: int, images: int) -> Evaluation:
    """An evaluation of random predictions."""
    return evaluate(outcomes_of(*predictions(count, images)), count)


def data_set(
    port: str, name: str, counts: Sequence[int] | np.ndarray, ignored: Mapping[str, int] = {}
) -> ImageDirectory:
    """A folder of this name with so many images of each category, none of which exists."""
    indices = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    names = Packer(f"{index}.png" for index in range(len(indices))).finish()
    categories = tuple(f"category {index}" for index in range(len(counts)))
    return images_of(Listing(names, indices, categories, (), ignored), Path(name), port)


def make_report(
    categories: Sequence[str] = ("blue", "green", "red"),
    images: int = 60,
    losses: Sequence[float] = (1.2, 0.7, 0.4, 0.5),
    mistakes: int = 3,
    unreadable_images: Sequence[UnreadableImage] = (),
    ignored: Mapping[str, int] | None = None,
    **changes: Any,
) -> Report:
    """A report with every section filled; `changes` replace fields of it."""
    count = len(categories)
    picture = encode(paint("red", 1))
    counts = np.random.default_rng(2).integers(10, 400, count)
    facts = [Fact("true", categories[0], "1.0%"), Fact("predicted", categories[1], "99.0%")]
    shown = [Card([picture], facts, [f"{categories[0]}/{index}.png"]) for index in range(mistakes)]
    config = TrainConfig(epochs=max(len(losses), 4))
    report = Report(
        spec=ClassifierSpec("resnet18", False, tuple(categories), Framing(32, 48, 1.0), HALF, HALF),
        evaluation=evaluation_of(count, images),
        galleries=[Gallery("mistakes", "Most confident mistakes", "3 of 60 images.", shown)],
        files={"0,1": [card.files[0] for card in shown[:6]]},
        calibrated="The probabilities are those of the network.",
        look_alikes="",
        about_suspects="",
        precision="bfloat16",
        config=config,
        recipe=decided_recipe(),
        plan={"Model": "resnet18", "Steps": "10 per epoch"},
        history=make_history(losses),
        best_epoch=int(np.nanargmin(losses)) + 1,
        stopped="",
        advice=(),
        rollbacks=0,
        training=data_set("Training dataset", "training", counts, ignored or {}),
        validation=data_set("Validation dataset", "validation", np.maximum(counts // 8, 10)),
        unreadable_images=unreadable_images,
        budget=budget_of([EpochTimes(30.0, 10.0, 5.0, 1)] * len(losses), 35.0 * len(losses) + 12.0),
        versions={"Python": "3.11.7", "torch": "2.10.0"},
        command=["python -m train_pytorch_model train", "--epochs 4"],
        fingerprint={"parameters": "--epochs 4", "untrained_model": "0" * 64},
        ended="1 May 2026, 12:00 UTC",
    )
    return replace(report, **changes)
