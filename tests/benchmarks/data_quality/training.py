"""Train the model of a benchmark on some of its images, and predict others."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.trainings import ALONE
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.pixel_decisions import decide_flips
from train_pytorch_model.datasets.digits import NAMES, write_digits
from train_pytorch_model.evaluation.calibration import calibrate
from train_pytorch_model.evaluation.metrics import Evaluation, evaluate, outcomes_of
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.inputs.scoring import open_trained_model
from train_pytorch_model.stories.init_model import initialize
from train_pytorch_model.stories.train import train

Images = Sequence[tuple[Path, str]]
"""Files and their categories."""


@dataclass(frozen=True)
class Parts:
    """Disjoint images of all categories."""

    training: Images
    validation: Images
    held_out: Images


@dataclass(frozen=True)
class Setting:
    """What is trained, and how."""

    architecture: str
    recipe: Recipe
    epochs: int
    learning_rate: float
    seed: int
    weights: Path | None = None
    batch_size: int = 32


def digits(folder: Path) -> Path:
    """scikit-learn's digits as class folders."""
    root = folder / "digits"
    for name in NAMES:
        (root / name).mkdir(parents=True)
    for path in (file for part in write_digits(folder / "parts") for file in part.rglob("*.png")):
        name = NAMES[int(path.name[0])]
        path.rename(root / name / path.name)
    return root


def split(root: Path, random: np.random.Generator) -> Parts:
    """70, 15 and 15 % of the images of class folders."""
    files = sorted(path for path in root.glob("*/*") if path.is_file())
    shuffled = [
        (files[index], files[index].parent.name) for index in random.permutation(len(files))
    ]
    first, second = round(0.7 * len(files)), round(0.85 * len(files))
    return Parts(shuffled[:first], shuffled[first:second], shuffled[second:])


def train_model(setting: Setting, folder: Path, training: Images, validation: Images) -> Path:
    """Return the trained model directory; the images' names begin with the names of their files'
    folders.
    """
    for part, images in (("training", training), ("validation", validation)):
        for file, category in images:
            (folder / part / category).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / part / category / f"{file.parent.name}--{file.name}")
    untrained = folder / "untrained"
    options = ModelOptions(
        architecture=setting.architecture, weights_file=setting.weights, recipe=setting.recipe
    )
    initialize(options, setting.seed, untrained, shows_download=False)
    config = TrainConfig(
        epochs=setting.epochs,
        batch_size=setting.batch_size,
        learning_rate=setting.learning_rate,
        random_seed=setting.seed,
    )
    inputs = open_training_inputs(
        untrained, folder / "training", folder / "validation", setting.epochs
    )
    train(config, decide_flips(inputs, ALONE), folder / "trained", ALONE)
    return folder / "trained"


def predict(model: Path, files: Sequence[Path]) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The model's categories, and of each image its probabilities (N, C) and energy (N,)."""
    directory, spec = open_trained_model(model, None)
    classifier = ImageClassifier.load(spec, directory.weights_path, torch.device("cpu"))
    framing = spec.framing
    images = [
        view(read_pixels(file, framing.short_side, framing.colours), framing) for file in files
    ]
    return spec.categories, *classifier.predict(torch.from_numpy(np.stack(images)))


def before_and_after(
    model: Path, probabilities: np.ndarray, targets: np.ndarray
) -> tuple[Evaluation, ...]:
    """Evaluate a model's probabilities (N, C) as those of its network, and as they are."""
    outcomes = outcomes_of(targets, probabilities)
    found = re.search(
        r"temperature of ([\d.]+)", (model / "report.html").read_text(encoding="utf-8")
    )
    logits = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    network = calibrate(outcomes, logits, 1 / float(found[1]) if found else 1.0)
    return tuple(evaluate(each, probabilities.shape[1]) for each in (network, outcomes))
