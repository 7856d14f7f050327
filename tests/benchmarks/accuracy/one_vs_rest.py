"""Lists of categories: the program beside scikit-learn's one-vs-rest on the same features.

    python -m tests.benchmarks.accuracy.one_vs_rest [--images DIR] [-- OPTIONS of fit]

Each image is a mosaic of two by two fields, of which one to four show an image of one category: one
of scikit-learn's digits, or of `--images`, one folder per category. Unless the options of fit name
weights (`-- --architecture NAME --weights-file FILE`), a ResNet-18 is trained on the single images
first. Then `fit` trains on the mosaics from these weights, with a frozen backbone and with
all layers; `score --embeddings` writes the features of each model; and logistic regressions, as
they come and standardized with the best of several penalties on the validation images, are fitted
to the features of the training images. Printed is the mean average precision on the test images, by
scikit-learn.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FIELDS = 4
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # scikit-learn's C
PREFIX = "Scored Probabilities_"
PARTS = (("training", 0.8), ("validation", 0.1), ("test", 0.1))
HEADINGS = ("epochs", "trained", "mAP", "one-vs-rest", "with the best penalty")

Singles = Sequence[tuple[Image.Image, str]]


def main() -> None:
    """Print a row for each number of epochs and each way to train."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=Path, help="a folder per category; digits if not given")
    parser.add_argument("--mosaics", type=int, default=2000)
    parser.add_argument("--side", type=int, default=32, help="of a field, in px")
    parser.add_argument("--epochs", type=int, nargs="+", default=[5, 10, 30])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("options", nargs="*", help="after --: further options of fit")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        singles = list(_folders(chosen.images, chosen.side) if chosen.images else _digits(chosen))
        _write_mosaics(singles, root / "mosaics", chosen)
        start = chosen.options or ["--start-from", str(_pretrain(singles, root / "backbone"))]
        print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
        for epochs in chosen.epochs:
            for name, freeze in (("last layer", ["--freeze-backbone"]), ("all layers", [])):
                output = root / f"{name[:4]}-{epochs}"
                options = [*start, *freeze, "--epochs", str(epochs)]
                values = " | ".join(f"{value:.3f}" for value in _compare(root, output, options))
                print(f"| {epochs} | {name} | {values} |", flush=True)


def _digits(chosen: argparse.Namespace) -> Iterable[tuple[Image.Image, str]]:
    digits = load_digits()
    for pixels, target in zip(digits.images, digits.target, strict=True):
        image = Image.fromarray((pixels * 15).astype(np.uint8)).convert("RGB")
        yield image.resize((chosen.side, chosen.side)), str(target)


def _folders(root: Path, side: int) -> Iterable[tuple[Image.Image, str]]:
    for path in sorted(root.glob("*/*")):
        yield Image.open(path).convert("RGB").resize((side, side)), path.parent.name


def _write_mosaics(singles: Singles, root: Path, chosen: argparse.Namespace) -> None:
    """Write mosaics and their `labels.csv`; no single image is in two parts."""
    root.mkdir()
    random = np.random.default_rng(chosen.seed)
    order = random.permutation(len(singles))
    rows: list[tuple[str, str, str]] = []
    first = 0
    for part, fraction in PARTS:
        own = order[first : first + round(fraction * len(singles))]
        first += len(own)
        for _ in range(round(fraction * chosen.mosaics)):
            mosaic = Image.new("RGB", (2 * chosen.side, 2 * chosen.side))
            labels = set()
            for field in random.permutation(FIELDS)[: random.integers(1, FIELDS + 1)].tolist():
                image, category = singles[random.choice(own)]
                mosaic.paste(image, (field % 2 * chosen.side, field // 2 * chosen.side))
                labels.add(category)
            name = f"{len(rows):05}.png"
            mosaic.save(root / name)
            rows.append((name, ";".join(sorted(labels)), part))
    with (root / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file_name", "labels", "split"), *rows])


def _pretrain(singles: Singles, root: Path) -> Path:
    """Return a model of the single images, whose categories have other names."""
    for number, (image, category) in enumerate(singles):
        folder = root / f"single {category}"
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number}.png")
    trained = root.with_name("trained")
    _run("fit", str(root), "--from-scratch", "--epochs", "6", "--output", str(trained))
    return trained


def _compare(root: Path, output: Path, options: Sequence[str]) -> tuple[float, float, float]:
    """Return the mean average precision of the program, and of two kinds of regressions."""
    mosaics = root / "mosaics"
    _run("fit", str(mosaics), *options, "--output", str(output))
    scores = output.with_name(f"{output.name}-scores")
    of_scores = ["--scored-dataset", str(scores), "--embeddings", "float32"]
    _run("score", "--trained-model", str(output), "--dataset", str(mosaics), *of_scores)

    table = pd.read_csv(mosaics / "labels.csv").set_index("file_name")
    embedded = pd.read_parquet(scores / "embeddings.parquet")
    features = np.stack(embedded["embedding"])
    table = table.loc[embedded["file_name"]]
    scored = pd.read_parquet(scores / "_data.parquet")
    columns = [name for name in scored.columns if name.startswith(PREFIX)]
    categories = [name.removeprefix(PREFIX) for name in columns]
    labels = [set(str(cell).split(";")) for cell in table["labels"]]
    targets = np.array([[name in names for name in categories] for names in labels])
    parts = table["split"].to_numpy()
    is_training, is_validation, is_test = (parts == name for name, _ in PARTS)

    def precision(answers: np.ndarray, is_part: np.ndarray) -> float:
        return float(average_precision_score(targets[is_part], answers, average="macro"))

    def predictions(regression: object, is_part: np.ndarray) -> np.ndarray:
        fitted = OneVsRestClassifier(regression).fit(features[is_training], targets[is_training])
        return np.asarray(fitted.predict_proba(features[is_part]))

    penalized = [
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=2000)) for c in PENALTIES
    ]
    best = max(
        penalized,
        key=lambda regression: precision(predictions(regression, is_validation), is_validation),
    )
    plain = LogisticRegression(max_iter=2000)
    return (
        precision(scored[columns].to_numpy()[is_test], is_test),
        precision(predictions(plain, is_test), is_test),
        precision(predictions(best, is_test), is_test),
    )


def _run(*arguments: str) -> None:
    """Run the program, which prints warnings and errors only."""
    command = [sys.executable, "-m", "train_pytorch_model", *arguments, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
