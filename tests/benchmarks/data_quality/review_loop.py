"""What the page of `review` is worth: an oracle answers its first pictures.

    python -m tests.benchmarks.data_quality.review_loop --images DIR [--weights FILE …]

`DIR` has one folder per category; without it, the images are scikit-learn's digits. For each seed,
of 1,000 images a tenth of the labels is made wrong. An oracle answers the first 100 pictures of the
page, `fit --corrections` trains again, and both models are measured on the other images, beside one
of the clean labels.

With `--label`, 5 x 50 images that the page chooses from an unlabelled folder, a model being trained
after every 50, are compared with 250 random ones, beside 50 labelled images to start with.
"""

import argparse
import json
import re
import shutil
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.data_quality.training import digits
from train_pytorch_model import fit
from train_pytorch_model.api.model import Model

NUM_IMAGES = 1000
NUM_ANSWERED = 100
FLIPPED = 0.1
ROUNDS = 5
PER_ROUND = 50


def main() -> None:
    """Print a line per seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=Path)
    parser.add_argument("--label", action="store_true")
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        chosen.images = chosen.images or digits(Path(made))
        for seed in range(1, chosen.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                measure = _label if chosen.label else _correct
                print(f"seed {seed}: {measure(chosen, seed, Path(folder))}", flush=True)


def _correct(chosen: argparse.Namespace, seed: int, folder: Path) -> str:
    """Return how many wrong labels are gone, and the accuracies on the other images."""
    random = np.random.default_rng(seed)
    files, others = _drawn(chosen.images, random)
    categories = sorted({file.parent.name for file in files})
    given = {}
    for file in files:
        is_wrong = random.random() < FLIPPED
        wrong = [name for name in categories if name != file.parent.name]
        given[file] = str(random.choice(wrong)) if is_wrong else file.parent.name
    _copy(files, folder / "planted", given)
    _copy(files, folder / "clean", {file: file.parent.name for file in files})
    _copy(others, folder / "others", {file: file.parent.name for file in others})

    clean = _fit(chosen, seed, folder / "clean")
    planted = _fit(chosen, seed, folder / "planted")
    items = _items(planted, folder / "planted", folder / "review.html", NUM_ANSWERED)
    answered = items["items"]
    rows = [f"{item['file']},{Path(item['file']).name.partition('--')[0]}" for item in answered]
    table = folder / "corrections.csv"
    table.write_text("\n".join(["file,decision", *rows]) + "\n")
    corrected = _fit(chosen, seed, folder / "planted", corrections=table)
    num_wrong = sum(given[file] != file.parent.name for file in files)
    num_gone = sum(
        Path(item["file"]).parent.name != Path(item["file"]).name.partition("--")[0]
        for item in answered
    )
    accuracies = [
        model.evaluate(folder / "others").accuracy for model in (clean, planted, corrected)
    ]
    return (
        f"{num_gone} of {num_wrong} wrong labels are gone ({num_gone / num_wrong:.0%}); accuracy on"
        f" {len(others)} others: clean {accuracies[0]:.3f}, planted {accuracies[1]:.3f}, corrected"
        f" {accuracies[2]:.3f}"
    )


def _label(chosen: argparse.Namespace, seed: int, folder: Path) -> str:
    """Return the accuracy with images that the page has chosen, and with random ones."""
    random = np.random.default_rng(seed)
    files, others = _drawn(chosen.images, random)
    _copy(others, folder / "others", {file: file.parent.name for file in others})
    known, pool = files[:PER_ROUND], files[PER_ROUND:]
    order = random.permutation(len(pool))[: ROUNDS * PER_ROUND]
    at_random = _fit_to(chosen, seed, folder / "random", known + [pool[index] for index in order])
    accuracies = []
    for number in range(ROUNDS + 1):
        root = folder / f"round {number}"
        model = _fit_to(chosen, seed, root / "known", known)
        accuracies.append(model.evaluate(folder / "others").accuracy)
        picked = _picked(model, root, pool)
        known = known + picked
        pool = [file for file in pool if file not in set(picked)]
    by_page = ", ".join(f"{accuracy:.3f}" for accuracy in accuracies)
    accuracy = at_random.evaluate(folder / "others").accuracy
    return f"chosen by the page, {PER_ROUND} a round: {by_page}; all at random {accuracy:.3f}"


def _fit_to(chosen: argparse.Namespace, seed: int, folder: Path, files: list[Path]) -> Model:
    """Return a model of images with their right categories."""
    _copy(files, folder, {file: file.parent.name for file in files})
    return _fit(chosen, seed, folder)


def _picked(model: Model, root: Path, pool: list[Path]) -> list[Path]:
    """Return the images that the page puts first."""
    by_name = {f"{file.parent.name}--{file.name}": file for file in pool}
    (root / "new").mkdir()
    for name, file in by_name.items():
        shutil.copyfile(file, root / "new" / name)
    items = _items(model, root / "new", root / "review.html", PER_ROUND)["items"]
    return [by_name[item["file"]] for item in items]


def _drawn(images: Path, random: np.random.Generator) -> tuple[list[Path], list[Path]]:
    """Return images to learn from, and others."""
    files = sorted(path for path in images.glob("*/*") if path.is_file())
    order = random.permutation(len(files)).tolist()
    return [files[i] for i in order[:NUM_IMAGES]], [files[i] for i in order[NUM_IMAGES:]]


def _copy(files: list[Path], folder: Path, given: dict[Path, str]) -> None:
    """Copy images to the folders of these categories; their names begin with the right one."""
    for file in files:
        (folder / given[file]).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / given[file] / f"{file.parent.name}--{file.name}")


def _fit(chosen: argparse.Namespace, seed: int, folder: Path, **options: Any) -> Model:
    start = {"weights_file": chosen.weights} if chosen.weights else {"from_scratch": True}
    return fit(
        folder,
        architecture=chosen.architecture,
        image_size=chosen.image_size,
        epochs=chosen.epochs,
        learning_rate=chosen.learning_rate,
        random_seed=seed,
        quiet=True,
        **start,
        **options,
    )


def _items(model: Model, folder: Path, page: Path, num_images: int) -> Any:
    """Return what the page of so many images gives its script."""
    text = model.review(folder, page, num_images=num_images).path.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(unescape(found[1]))


if __name__ == "__main__":
    main()
