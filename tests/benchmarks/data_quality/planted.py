"""Train on images with planted faults, and print how many of them the run has found.

    python -m tests.benchmarks.data_quality.planted --images DIR

`DIR` has one folder per category; without it, the images are scikit-learn's digits. Each seed
trains twice. First, a tenth of the labels is wrong: how many of the first suspects are? Then, of
three categories or more, a fifth is missing: does the free energy tell their images from others
better than the highest probability, and is the calibrated model better on images held out from
both?
"""

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from csv import DictReader
from pathlib import Path
from unittest.mock import patch

import numpy as np
from sklearn.metrics import roc_auc_score

from tests.benchmarks.data_quality.training import (
    Images,
    Setting,
    before_and_after,
    digits,
    predict,
    split,
    train_model,
)
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.inputs.opening import TRAINING_DATASET
from train_pytorch_model.quality.suspects import SUSPECTS
from train_pytorch_model.training import state

FLIPPED = 0.1
MISSING = 0.2
NUM_FIRST = 50


def main() -> None:
    """Print a line per seed, and the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=Path)
    parser.add_argument("--flipped", type=float, default=FLIPPED, help="share of wrong labels")
    parser.add_argument(
        "--all-epochs", action="store_true", help="judge margins over all epochs, as once"
    )
    parser.add_argument("--suspects-only", action="store_true", help="train once")
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument(
        "--weights", type=Path, help="state dict to fine-tune; from scratch if not given"
    )
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    rows = []
    with ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chosen.images = chosen.images or digits(made)
        has_third = sum(1 for path in chosen.images.iterdir() if path.is_dir()) > 2
        if chosen.all_epochs:
            stack.enter_context(patch.object(state, "MIN_COUNTING", chosen.epochs))
        for seed in range(1, chosen.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(_suspects(chosen, seed, Path(folder)))
                if has_third and not chosen.suspects_only:
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
            if random.random() < chosen.flipped
            else (file, category)
            for file, category in images
        ]

    training, validation = flip(parts.training), flip(parts.validation)
    model = train_model(_setting(chosen, seed), folder / "flipped", training, validation)
    listed = model / SUSPECTS
    rows = (
        list(DictReader(listed.read_text(encoding="utf-8").splitlines())) if listed.exists() else []
    )
    wrong = np.array(
        [Path(row["file"]).name.partition("--")[0] != row["given"] for row in rows], bool
    )
    is_training = np.array([row["dataset"] == TRAINING_DATASET for row in rows], bool)
    planted, in_training = (
        sum(file.parent.name != given for file, given in part)
        for part in ([*training, *validation], training)
    )
    return {
        f"wrong labels among the first {NUM_FIRST} suspects": float(wrong[:NUM_FIRST].mean())
        if rows
        else 1.0,
        "suspects": len(rows),
        "wrong labels listed, of all": wrong.sum() / max(planted, 1),
        "training images": len(training),
        "wrong": in_training,
        "suspects among them": int(is_training.sum()),
        "of which wrong": int(wrong[is_training].sum()),
    }


def _unknown(chosen: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    random = np.random.default_rng(seed)
    parts = split(chosen.images, random)
    categories = sorted({category for _, category in parts.training})
    missing = set(
        random.choice(categories, max(1, round(MISSING * len(categories))), replace=False)
    )

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
