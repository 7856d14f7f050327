"""Train on images with planted faults, and print how many of them the run has found.

    python -m tests.benchmarks.data_quality.planted --images DIR

`DIR` has one folder per category. Each seed trains twice. First, a tenth of the labels is wrong: how many of
the first suspects are? Then a fifth of the categories is missing: does the free energy tell their images from
others better than the highest probability, and is the calibrated model better on images held out from both?
"""

import argparse
import re
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from csv import DictReader
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from tests.trainings import ALONE
from train_pytorch_model.data.chirality import decide_flips
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.inputs.opening import open_trained_model, open_training_inputs
from train_pytorch_model.measures.calibration import calibrate
from train_pytorch_model.measures.evaluation import evaluate, outcomes_of
from train_pytorch_model.stories.init_model import initialize
from train_pytorch_model.stories.train import train
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.recipe import Recipe

FLIPPED = 0.1
MISSING = 0.2
NUM_FIRST = 50
Images = Sequence[tuple[Path, str]]
"""Files and their categories."""


@dataclass(frozen=True)
class Parts:
    """Disjoint images of all categories."""

    training: Images
    validation: Images
    held_out: Images


def main() -> None:
    """Print a line per seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    rows = []
    for seed in range(1, chosen.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            rows.append({**_suspects(chosen, seed, Path(folder)), **_unknown(chosen, seed, Path(folder))})
        print(f"seed {seed}: {_line(rows[-1])}", flush=True)
    print(f"mean: {_line({name: statistics.mean(row[name] for row in rows) for name in rows[0]})}")


def _line(row: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in row.items())


def _suspects(chosen: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    random = np.random.default_rng(seed)
    parts = _parts(chosen.images, random)
    categories = sorted({category for _, category in parts.training})

    def flip(images: Images) -> Images:
        return [
            (file, str(random.choice([other for other in categories if other != category])))
            if random.random() < FLIPPED
            else (file, category)
            for file, category in images
        ]

    model = _train(chosen, seed, folder / "flipped", flip(parts.training), flip(parts.validation))
    with (model / "suspects.csv").open(newline="", encoding="utf-8") as file:
        rows = list(DictReader(file))
    wrong = [Path(row["file"]).name.partition("--")[0] != row["given"] for row in rows]
    return {
        f"wrong labels among the first {NUM_FIRST} suspects": statistics.mean(wrong[:NUM_FIRST]),
        "suspects": len(rows),
    }


def _unknown(chosen: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    random = np.random.default_rng(seed)
    parts = _parts(chosen.images, random)
    categories = sorted({category for _, category in parts.training})
    missing = set(random.choice(categories, max(1, round(MISSING * len(categories))), replace=False))

    def known(images: Images) -> Images:
        return [(file, category) for file, category in images if category not in missing]

    model = _train(chosen, seed, folder / "known", known(parts.training), known(parts.validation))
    held_out = [*known(parts.held_out), *(each for each in parts.held_out if each[1] in missing)]
    directory, spec = open_trained_model(model, None)
    classifier = ImageClassifier.load(spec, directory.weights_path, torch.device("cpu"))
    framing = spec.framing
    pixels = [view(read_pixels(file, framing.short_side, framing.colours), framing) for file, _ in held_out]
    probabilities, energies = classifier.predict(torch.from_numpy(np.stack(pixels)))
    is_missing = [category in missing for _, category in held_out]

    targets = np.array([spec.categories.index(category) for _, category in known(parts.held_out)])
    outcomes = outcomes_of(targets, probabilities[: len(targets)])
    found = re.search(r"temperature of ([\d.]+)", (model / "report.html").read_text(encoding="utf-8"))
    logits = np.log(np.maximum(probabilities[: len(targets)], np.finfo(np.float64).tiny))
    network = calibrate(outcomes, logits, 1 / float(found[1]) if found else 1.0)  # as before calibration
    before, after = (evaluate(each, len(spec.categories)) for each in (network, outcomes))
    return {
        "AUROC of the energy": roc_auc_score(is_missing, energies),
        "of the highest probability": roc_auc_score(is_missing, -probabilities.max(axis=1)),
        "loss on held-out images": before.loss,
        "calibrated": after.loss,
        "calibration error": before.calibration.error,
        "calibrated to": after.calibration.error,
    }


def _parts(root: Path, random: np.random.Generator) -> Parts:
    files = sorted(path for path in root.glob("*/*") if path.is_file())
    shuffled = [(files[index], files[index].parent.name) for index in random.permutation(len(files))]
    first, second = round(0.7 * len(files)), round(0.85 * len(files))
    return Parts(shuffled[:first], shuffled[first:second], shuffled[second:])


def _train(chosen: argparse.Namespace, seed: int, folder: Path, training: Images, validation: Images) -> Path:
    """Return the trained model directory; the images' names begin with their true categories."""
    for part, images in (("training", training), ("validation", validation)):
        for file, category in images:
            (folder / part / category).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / part / category / f"{file.parent.name}--{file.name}")
    recipe = Recipe(image_size=chosen.image_size)
    initialize(chosen.architecture, False, None, None, seed, recipe, folder / "untrained")
    config = TrainConfig(
        epochs=chosen.epochs, batch_size=32, learning_rate=chosen.learning_rate, random_seed=seed
    )
    inputs = open_training_inputs(
        folder / "untrained", folder / "training", folder / "validation", chosen.epochs
    )
    train(config, decide_flips(inputs, ALONE), folder / "trained", ALONE)
    return folder / "trained"


if __name__ == "__main__":
    main()
