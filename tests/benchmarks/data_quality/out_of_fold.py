"""Wrong labels among training images, found by predictions out of fold and by margins.

    python -m tests.benchmarks.data_quality.out_of_fold --images DIR --weights FILE

A tenth of the labels of `DIR`, one folder per category, is wrong. The network is fine-tuned on some
of the images, which gives margins; the features of the weights as they are give predictions out of
fold, as in a race. Of as many suspects as there are wrong labels, how many are wrong? And how many
images does each list, of which how many are wrong?
"""

import argparse
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

from tests.benchmarks.data_quality.training import Images, Setting, train_model
from tests.trainings import ALONE
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.data.pixel_decisions import decide_white_level
from train_pytorch_model.evaluation.label_noise import fit_label_noise
from train_pytorch_model.inference.features import FeatureExtractor
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.publishing import find_suspects
from train_pytorch_model.publishing.find_suspects import Evidence
from train_pytorch_model.quality.folds import stratified_folds
from train_pytorch_model.quality.solved_classifier import out_of_fold
from train_pytorch_model.quality.suspects import (
    Suspects,
    suspects_by_margin,
    suspects_by_prediction,
)

FLIPPED = 0.1
VALIDATION = 0.125  # of the training images


def main() -> None:
    """Print a line for each number of images and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True, help="state dict to fine-tune")
    parser.add_argument("--architecture", default="timm:tf_efficientnet_lite0")
    parser.add_argument("--training-images", type=int, nargs="+", default=[200, 500, 1500])
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    chosen = parser.parse_args()
    for number in chosen.training_images:
        for seed in chosen.seeds:
            with tempfile.TemporaryDirectory() as folder:
                print(number, seed, _measure(chosen, number, seed, Path(folder)), flush=True)


def _measure(chosen: argparse.Namespace, number: int, seed: int, folder: Path) -> str:
    random = np.random.default_rng(seed)
    files = sorted(path for path in chosen.images.glob("*/*") if path.is_file())
    order = random.permutation(len(files))[: round(number * (1 + VALIDATION))]
    images = _with_wrong_labels([files[index] for index in order.tolist()], random)
    setting = Setting(
        chosen.architecture,
        Recipe(image_size=chosen.image_size),
        chosen.epochs,
        0.001,
        seed,
        weights=chosen.weights,
        batch_size=16,
    )
    evidence: list[Evidence] = []
    training_suspects = find_suspects._training_suspects

    def recorded(each: Evidence, held_out: Suspects) -> Suspects:
        evidence.append(each)
        lists.append(held_out)
        return training_suspects(each, held_out)

    lists: list[Suspects] = []
    with patch.object(find_suspects, "_training_suspects", recorded):
        train_model(setting, folder, images[:number], images[number:])
    margins, others = evidence[0].margins
    training = evidence[0].inputs.training
    names = [Path(name) for name in training.file_names]
    is_wrong = np.array([name.name.partition("--")[0] != name.parent.name for name in names])
    of_margins = suspects_by_margin(margins, others, lists[0])

    inputs = open_training_inputs(
        folder / "untrained", folder / "training", folder / "validation", chosen.epochs
    )
    inputs = decide_white_level(inputs, ALONE)
    network = build_model(inputs.model, inputs.categories)
    extractor = FeatureExtractor(inputs.spec, network, ALONE)
    features = extractor.features(inputs.training, np.arange(len(training))).values
    targets = inputs.training.class_indices
    folds = stratified_folds(targets, np.arange(len(targets)), seed)
    logits = out_of_fold(features, targets, folds, len(inputs.categories)).logits
    noise = fit_label_noise(logits, targets)
    of_folds = suspects_by_prediction(targets, logits, noise.wrong_probabilities(logits, targets))
    label_probabilities = noise.label_probabilities(logits, targets)
    accuracy = (logits.argmax(axis=1) == targets).mean()
    texts = [
        f"{name} {_first(ranking, is_wrong):.2f}, {len(suspects.indices)} listed,"
        f" {int(is_wrong[suspects.indices].sum())} wrong"
        for name, ranking, suspects in (
            ("margins", margins, of_margins),
            ("out of fold", label_probabilities, of_folds),
            ("mean rank", _ranks(margins) + _ranks(label_probabilities), of_folds),
        )
    ]
    return f"{is_wrong.sum()} wrong, accuracy out of fold {accuracy:.2f}: {'; '.join(texts)}"


def _with_wrong_labels(files: list[Path], random: np.random.Generator) -> Images:
    categories = sorted({file.parent.name for file in files})
    images = []
    for file in files:
        category = file.parent.name
        if random.random() < FLIPPED:
            category = str(random.choice([other for other in categories if other != category]))
        images.append((file, category))
    return images


def _first(ranking: np.ndarray, is_wrong: np.ndarray) -> float:
    """Return how many of the first images are wrong, as many as there are wrong ones."""
    order = np.argsort(ranking, kind="stable")
    return float(is_wrong[order[: is_wrong.sum()]].mean())


def _ranks(values: np.ndarray) -> np.ndarray:
    ranks: np.ndarray = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return ranks


if __name__ == "__main__":
    main()
