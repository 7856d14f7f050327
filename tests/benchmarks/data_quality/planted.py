"""Train on images with planted faults, and print how many of them the run has found.

    python -m tests.benchmarks.data_quality.planted --images DIR

`DIR` has one folder per category. Each seed trains twice. First, a tenth of the labels is wrong: how many of
the first suspects are? Then, of three categories or more, a fifth is missing: does the free energy tell their
images from others better than the highest probability, and is the calibrated model better on images held out
from both?
"""

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from csv import DictReader
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from tests.benchmarks.data_quality.training import (
    Images,
    Setting,
    before_and_after,
    predict,
    split,
    train_model,
)
from train_pytorch_model.words.settings import Recipe

FLIPPED = 0.1
MISSING = 0.2
NUM_FIRST = 50


def main() -> None:
    """Print a line per seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--weights", type=Path, help="state dict to fine-tune; from scratch if not given")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    rows = []
    for seed in range(1, chosen.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_suspects(chosen, seed, Path(folder)))
            if sum(1 for path in chosen.images.iterdir() if path.is_dir()) > 2:
                rows[-1] |= _unknown(chosen, seed, Path(folder))
        print(f"seed {seed}: {_line(rows[-1])}", flush=True)
    print(f"mean: {_line({name: statistics.mean(row[name] for row in rows) for name in rows[0]})}")


def _line(row: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in row.items())


def _suspects(chosen: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    random = np.random.default_rng(seed)
    parts = split(chosen.images, random)
    categories = sorted({category for _, category in parts.training})

    def flip(images: Images) -> Images:
        return [
            (file, str(random.choice([other for other in categories if other != category])))
            if random.random() < FLIPPED
            else (file, category)
            for file, category in images
        ]

    training, validation = flip(parts.training), flip(parts.validation)
    model = train_model(_setting(chosen, seed), folder / "flipped", training, validation)
    with (model / "suspects.csv").open(newline="", encoding="utf-8") as file:
        rows = list(DictReader(file))
    wrong = [Path(row["file"]).name.partition("--")[0] != row["given"] for row in rows]
    planted = sum(file.parent.name != given for file, given in [*training, *validation])
    return {
        f"wrong labels among the first {NUM_FIRST} suspects": statistics.mean(wrong[:NUM_FIRST]),
        "suspects": len(rows),
        "wrong labels listed, of all": sum(wrong) / planted,
    }


def _unknown(chosen: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    random = np.random.default_rng(seed)
    parts = split(chosen.images, random)
    categories = sorted({category for _, category in parts.training})
    missing = set(random.choice(categories, max(1, round(MISSING * len(categories))), replace=False))

    def known(images: Images) -> Images:
        return [(file, category) for file, category in images if category not in missing]

    training, validation = known(parts.training), known(parts.validation)
    model = train_model(_setting(chosen, seed), folder / "known", training, validation)
    held_out = [*known(parts.held_out), *(each for each in parts.held_out if each[1] in missing)]
    names, probabilities, energies = predict(model, [file for file, _ in held_out])
    is_missing = [category in missing for _, category in held_out]
    targets = np.array([names.index(category) for _, category in known(parts.held_out)])
    before, after = before_and_after(model, probabilities[: len(targets)], targets)
    return {
        "AUROC of the energy": roc_auc_score(is_missing, energies),
        "of the highest probability": roc_auc_score(is_missing, -probabilities.max(axis=1)),
        "loss on held-out images": before.loss,
        "calibrated": after.loss,
        "calibration error": before.calibration.error,
        "calibrated to": after.calibration.error,
    }


def _setting(chosen: argparse.Namespace, seed: int) -> Setting:
    recipe = Recipe(image_size=chosen.image_size)
    return Setting(
        chosen.architecture,
        recipe,
        chosen.epochs,
        chosen.learning_rate,
        seed,
        weights=chosen.weights,
        batch_size=chosen.batch_size,
    )


if __name__ == "__main__":
    main()
