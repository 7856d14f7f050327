"""Whether features of mirrored images help a solved classifier: in training, and in service.

    python -m tests.benchmarks.accuracy.mirrored_features --images DIR --model UNTRAINED

`DIR` has one folder per category. Half of the columns are of images as they are; in the others the
logits are the mean over an image and its mirror image, which takes twice the time in service.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from tests.trainings import ALONE
from train_pytorch_model.data.pixel_decisions import decide_white_level
from train_pytorch_model.inference.features import FeatureExtractor
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.folds import stratified_folds
from train_pytorch_model.quality.solved_classifier import losses_of, out_of_fold, solve


def main() -> None:
    """Print accuracy and loss on the images that are not drawn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--training", type=int, nargs="+", default=[160, 400])
    parser.add_argument("--draws", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mirrored = Path(folder) / "mirrored"
        for path in chosen.images.glob("*/*"):
            target = mirrored / path.parent.name / f"{path.stem}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            ImageOps.mirror(Image.open(path).convert("RGB")).save(target)
        plain, targets = _features(chosen.model, chosen.images)
        other, _ = _features(chosen.model, mirrored)
    print("| images | trained on | as they are | with mirror images |\n|---|---|---|---|")
    for count in chosen.training:
        for is_doubled in (False, True):
            draws = [
                _draw(plain, other, targets, count, is_doubled, n) for n in range(chosen.draws)
            ]
            accuracy, loss, accuracy_of_both, loss_of_both = np.mean(draws, axis=0)
            views = "both views" if is_doubled else "images"
            print(
                f"| {count} | {views} | {accuracy:.1%} ({loss:.3f})"
                f" | {accuracy_of_both:.1%} ({loss_of_both:.3f}) |"
            )


def _features(model: Path, images: Path) -> tuple[np.ndarray, np.ndarray]:
    inputs = decide_white_level(open_training_inputs(model, images, images, 1), ALONE)
    network = build_model(inputs.model, inputs.categories)
    extractor = FeatureExtractor(inputs.spec, network, ALONE)
    computed = extractor.features(inputs.training, np.arange(len(inputs.training)))
    return computed.values, inputs.training.class_indices


def _draw(
    plain: np.ndarray,
    other: np.ndarray,
    targets: np.ndarray,
    count: int,
    is_doubled: bool,
    number: int,
) -> tuple[float, ...]:
    order = np.random.default_rng(number).permutation(len(targets))
    drawn, others = order[:count], order[count:]
    rows = plain[drawn]
    labels = targets[drawn]
    folds = stratified_folds(labels, np.arange(count), number)
    if is_doubled:
        rows = np.concatenate([rows, other[drawn]])
        labels = np.tile(labels, 2)
        folds = np.tile(folds, 2)
    num_classes = int(targets.max()) + 1
    strength = out_of_fold(rows, labels, folds, num_classes).strength
    solved = solve(rows, labels, num_classes, strength)
    logits = solved.logits(plain[others])
    of_both = (logits + solved.logits(other[others])) / 2
    found = []
    for each in (logits, of_both):
        found += [float((each.argmax(axis=1) == targets[others]).mean())]
        found += [float(losses_of(each, targets[others]).mean())]
    return tuple(found)


if __name__ == "__main__":
    main()
