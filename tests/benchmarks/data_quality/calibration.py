"""Does the temperature help on images that played no part in training? Print loss and calibration
error.

    python -m tests.benchmarks.data_quality.calibration --images DIR DIR --weights FILE

Each folder has one folder per category; scikit-learn's digits are added. Each is learned from
scratch by a small network and, if there are weights for it, fine-tuned by another one, with and
without label smoothing. With --draws, nothing is trained: logits are drawn that are too large by a
factor.
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np

from tests.benchmarks.data_quality.training import (
    Setting,
    before_and_after,
    digits,
    predict,
    split,
    train_model,
)
from tests.unit.evaluation.test_calibration import predicted
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.evaluation.calibration import calibrate, fit_temperature
from train_pytorch_model.evaluation.metrics import losses_of, outcomes_of

SMOOTHINGS = (0.0, 0.1)


def main() -> None:
    """Print a row per run, and in how many of them loss and error are lower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=Path, nargs="*", default=[])
    parser.add_argument("--weights", type=Path, help="state dict to fine-tune")
    parser.add_argument("--weights-architecture", default="timm:tf_efficientnet_lite0")
    parser.add_argument(
        "--weights-size", type=int, default=64, help="image size for fine-tuning, in px"
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=0, help="number of draws of each kind")
    chosen = parser.parse_args()
    if chosen.draws:
        _show_draws(chosen.draws)
        return
    print(
        "| images | network | smoothing | images | loss | calibrated | at best | error | calibrated"
        " |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    lower = np.zeros(3, int)
    with tempfile.TemporaryDirectory() as folder:
        folders = [*chosen.images, digits(Path(folder))]
        for root, smoothing in itertools.product(folders, SMOOTHINGS):
            for setting in _settings(chosen, smoothing):
                lower += _run(setting, root)
    print(f"loss lower in {lower[1]} of {lower[0]} runs, calibration error in {lower[2]}")


def _settings(chosen: argparse.Namespace, smoothing: float) -> list[Setting]:
    recipe = Recipe(image_size=32, label_smoothing=smoothing)
    settings = [Setting("resnet18", recipe, chosen.epochs, 0.02, chosen.seed)]
    if chosen.weights:
        recipe = Recipe(
            image_size=chosen.weights_size, label_smoothing=smoothing, precision="float32"
        )
        name, epochs = chosen.weights_architecture, max(1, chosen.epochs // 2)
        settings.append(Setting(name, recipe, epochs, 0.01, chosen.seed, chosen.weights))
    return settings


def _run(setting: Setting, root: Path) -> np.ndarray:
    """Print the row of a run; returns (3,), int: 1, and whether loss and calibration error are
    lower.
    """
    parts = split(root, np.random.default_rng(setting.seed))
    with tempfile.TemporaryDirectory() as folder:
        model = train_model(setting, Path(folder), parts.training, parts.validation)
        names, probabilities, _ = predict(model, [file for file, _ in parts.held_out])
        targets = np.array([names.index(category) for _, category in parts.held_out])
        before, after = before_and_after(model, probabilities, targets)
    outcomes = outcomes_of(targets, probabilities)
    logits = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    tried = np.geomspace(0.2, 5, 200)  # on the held-out images themselves
    best = min(losses_of(calibrate(outcomes, logits, value)).mean() for value in tried)
    errors = before.calibration.error, after.calibration.error
    cells = [
        root.name,
        setting.architecture,
        f"{setting.recipe.label_smoothing}",
        f"{len(parts.training)}, {len(parts.validation)}, {len(parts.held_out)}",
        f"{before.loss:.4f}",
        f"{after.loss:.4f}",
        f"{best:.4f}",
        *(f"{error:.1%}" for error in errors),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    gained = np.array([before.loss - after.loss, errors[0] - errors[1]])
    return np.array([1, *(gained > 1e-9)])  # more than rounding


def _show_draws(count: int) -> None:
    """Print how many temperatures, fitted to few images, help and harm many others."""
    print(
        "| logits are too large by | images | of so many draws helped | harmed | change of the loss"
        " |"
    )
    print("|---|---|---|---|---|")
    for factor, images in itertools.product((0.5, 1.0, 1.2, 1.5, 1.8, 2.5), (24, 36, 100, 300)):
        others, other = predicted(factor, seed=1000)
        fitted = [fit_temperature(*predicted(factor, images, seed)).value for seed in range(count)]
        losses = np.array([losses_of(calibrate(other, others, value)).mean() for value in fitted])
        gained = np.where(np.array(fitted) == 1, 0, losses_of(other).mean() - losses)
        print(
            f"| {factor} | {images} | {(gained > 0).sum()} | {(gained < 0).sum()} |"
            f" {-gained.mean():.4f} |"
        )


if __name__ == "__main__":
    main()
