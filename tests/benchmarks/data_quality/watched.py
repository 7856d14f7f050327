"""What `watch` says of images that were corrupted in ways that the training has not tried: alarms,
and the accuracy without labels. Print tables.

    python -m tests.benchmarks.data_quality.watched [--images DIR …]

Each folder has one folder per category; without any, these are scikit-learn's digits. Half of the
images train, a fifth validates, and draws of the others are watched.
"""

import argparse
import io
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import ndimage

from tests.benchmarks.data_quality.training import Setting, digits, train_model
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.formats.histograms import Histograms, read_histograms
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.image_classifier.seen import brightness_of
from train_pytorch_model.inputs.scoring import open_trained_model
from train_pytorch_model.quality.drift import Drift, compare

DRAWN = 300
CLEAN_DRAWS = 200
PARTS = (0.05, 0.1, 0.25)  # of a draw, that are corrupted
# Falls of the accuracy.
BINS = ((-1.0, 0.02), (0.02, 0.05), (0.05, 0.15), (0.15, 1.0))
MIN_FALL = 0.05  # of a draw that should raise an alarm

Pixels = np.ndarray  # (H, W, 3), 0 to 1
Corrupt = Callable[[Pixels, np.random.Generator], Pixels]


def _motion(pixels: Pixels, fraction: float) -> Pixels:
    length = max(2, round(fraction * pixels.shape[1]))
    filtered: Pixels = ndimage.uniform_filter1d(pixels, length, axis=1, mode="nearest")
    return filtered


def _impulses(pixels: Pixels, random: np.random.Generator, fraction: float) -> Pixels:
    drawn = random.random(pixels.shape[:2])
    corrupted = pixels.copy()
    corrupted[drawn < fraction / 2] = 0
    corrupted[drawn > 1 - fraction / 2] = 1
    return corrupted


def _fog(pixels: Pixels, random: np.random.Generator, density: float) -> Pixels:
    fog = ndimage.gaussian_filter(random.random(pixels.shape[:2]), pixels.shape[0] / 6, mode="wrap")
    fog = (fog - fog.min()) / max(np.ptp(fog), 1e-9)
    weight = (density * (0.6 + 0.4 * fog))[..., None]
    foggy: Pixels = pixels * (1 - weight) + 0.95 * weight
    return foggy


def _pixelate(pixels: Pixels, fraction: float) -> Pixels:
    image = Image.fromarray((pixels * 255).astype(np.uint8))
    small = image.resize(
        [max(2, int(side * fraction)) for side in image.size], Image.Resampling.BOX
    )
    return np.asarray(small.resize(image.size, Image.Resampling.NEAREST)) / 255


def _webp(pixels: Pixels, quality: int) -> Pixels:
    file = io.BytesIO()
    Image.fromarray((pixels * 255).astype(np.uint8)).save(file, "WEBP", quality=quality)
    return np.asarray(Image.open(file).convert("RGB")) / 255


def _shift(pixels: Pixels, fraction: float) -> Pixels:
    height, width, _ = pixels.shape
    offsets = (fraction * height, -fraction * width, 0)
    shifted: Pixels = ndimage.shift(pixels, offsets, order=1, mode="nearest")
    return shifted


def _zoom(pixels: Pixels, fraction: float) -> Pixels:
    height, width, _ = pixels.shape
    top, left = int(height * (1 - fraction) / 2), int(width * (1 - fraction) / 2)
    image = Image.fromarray((pixels * 255).astype(np.uint8))
    box = (left, top, width - left, height - top)
    return np.asarray(image.crop(box).resize((width, height), Image.Resampling.BILINEAR)) / 255


def _stripes(pixels: Pixels, fraction: float) -> Pixels:
    rows = np.arange(pixels.shape[0]) % 8
    corrupted = pixels.copy()
    corrupted[rows < 8 * fraction] = 0.5
    return corrupted


def _cast(pixels: Pixels, strength: float) -> Pixels:
    return pixels * (1 - strength * np.array([0, 0.5, 1]))


def _posterize(pixels: Pixels, levels: int) -> Pixels:
    return np.floor(pixels * levels * 0.9999) / (levels - 1)


def _elastic(pixels: Pixels, random: np.random.Generator, strength: float) -> Pixels:
    height, width, _ = pixels.shape
    drawn = random.uniform(-1, 1, (2, height, width))
    moves = [ndimage.gaussian_filter(each, width / 10) for each in drawn]
    rows, columns = [
        axis + strength * width * move / max(np.abs(move).max(), 1e-9)
        for axis, move in zip(np.mgrid[:height, :width], moves, strict=True)
    ]
    channels = [
        ndimage.map_coordinates(pixels[..., channel], [rows, columns], order=1, mode="nearest")
        for channel in range(3)
    ]
    return np.stack(channels, axis=-1)


CORRUPTIONS: Mapping[str, Corrupt] = {
    "motion 0.07": lambda pixels, _: _motion(pixels, 0.07),
    "motion 0.15": lambda pixels, _: _motion(pixels, 0.15),
    "impulses 0.01": lambda pixels, random: _impulses(pixels, random, 0.01),
    "impulses 0.04": lambda pixels, random: _impulses(pixels, random, 0.04),
    "fog 0.3": lambda pixels, random: _fog(pixels, random, 0.3),
    "fog 0.6": lambda pixels, random: _fog(pixels, random, 0.6),
    "gamma 1.8": lambda pixels, _: pixels**1.8,
    "gamma 0.5": lambda pixels, _: pixels**0.5,
    "pixelate 0.7": lambda pixels, _: _pixelate(pixels, 0.7),
    "pixelate 0.45": lambda pixels, _: _pixelate(pixels, 0.45),
    "WebP 10": lambda pixels, _: _webp(pixels, 10),
    "WebP 1": lambda pixels, _: _webp(pixels, 1),
    "shift 0.07": lambda pixels, _: _shift(pixels, 0.07),
    "shift 0.15": lambda pixels, _: _shift(pixels, 0.15),
    "zoom 0.85": lambda pixels, _: _zoom(pixels, 0.85),
    "zoom 0.65": lambda pixels, _: _zoom(pixels, 0.65),
    "stripes 0.13": lambda pixels, _: _stripes(pixels, 0.13),
    "stripes 0.25": lambda pixels, _: _stripes(pixels, 0.25),
    "cast 0.3": lambda pixels, _: _cast(pixels, 0.3),
    "cast 0.7": lambda pixels, _: _cast(pixels, 0.7),
    "posterize 6": lambda pixels, _: _posterize(pixels, 6),
    "posterize 3": lambda pixels, _: _posterize(pixels, 3),
    "elastic 0.03": lambda pixels, random: _elastic(pixels, random, 0.03),
    "elastic 0.06": lambda pixels, random: _elastic(pixels, random, 0.06),
}


@dataclass(frozen=True)
class Answers:
    """What a model answers to N images."""

    values: np.ndarray  # (N, 5): energy, confidence, brightness, class index, and whether right

    @property
    def accuracy(self) -> float:
        return float(self.values[:, 4].mean())

    def select(self, rows: np.ndarray) -> "Answers":
        return Answers(self.values[rows])

    def with_part(self, other: "Answers", count: int) -> "Answers":
        """Take the first rows from others."""
        return Answers(np.concatenate([other.values[:count], self.values[count:]]))

    def compare(self, histograms: Histograms) -> Drift:
        energies, confidences, brightness, predicted, _ = self.values.T
        features = {"energy": energies, "confidence": confidences, "brightness": brightness}
        unknown = np.full(len(energies), np.nan)
        features |= {"aspect_ratio": unknown, "pixels": unknown}
        return compare(histograms, features, confidences, predicted.astype(np.int64))


@dataclass(frozen=True)
class Case:
    """A draw, and what is said of it."""

    kind: str
    fall: float  # of the accuracy
    accuracy: float
    ceiling: float  # the accuracy of all images that are corrupted like those of the draw
    drift: Drift


def main() -> None:
    """Print a table of alarms, and one of estimates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=Path, nargs="*", default=[])
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for root in chosen.images or [digits(Path(folder))]:
            _show(root.name, _cases(chosen, root))


def _cases(chosen: argparse.Namespace, root: Path) -> list[Case]:
    random = np.random.default_rng(chosen.seed)
    files = sorted(path for path in root.glob("*/*") if path.is_file())
    shuffled = [
        (files[index], files[index].parent.name) for index in random.permutation(len(files))
    ]
    half, most = round(0.5 * len(files)), round(0.7 * len(files))
    setting = Setting(
        chosen.architecture, Recipe(image_size=32), chosen.epochs, chosen.learning_rate, chosen.seed
    )
    with tempfile.TemporaryDirectory() as folder:
        model = train_model(setting, Path(folder), shuffled[:half], shuffled[half:most])
        answers = _answers(model, shuffled[most:])
        histograms = read_histograms(model)
    return _draw(histograms, answers, random)


def _answers(model: Path, images: list[tuple[Path, str]]) -> dict[str, Answers]:
    """Return the answers to images as they are, called `clean`, and by corruption."""
    directory, spec = open_trained_model(model, None)
    classifier = ImageClassifier.load(spec, directory.weights_path, torch.device("cpu"))
    targets = np.array([spec.categories.index(category) for _, category in images])
    read = [read_pixels(file, spec.framing.short_side, spec.framing.colours) for file, _ in images]

    def answer(corrupt: Corrupt) -> Answers:
        random = np.random.default_rng(0)
        corrupted = [np.clip(corrupt(pixels / 255, random), 0, 1) for pixels in read]
        frames = np.stack(
            [view((pixels * 255).round().astype(np.uint8), spec.framing) for pixels in corrupted]
        )
        rows = []
        for start in range(0, len(frames), 64):
            batch = torch.from_numpy(frames[start : start + 64])
            probabilities, energies = classifier.predict(batch)
            predicted = probabilities.argmax(axis=1)
            is_right = predicted == targets[start : start + 64]
            columns = [energies, probabilities.max(axis=1), brightness_of(batch), predicted]
            rows.append(np.column_stack([*columns, is_right]))
        return Answers(np.concatenate(rows))

    kinds: Mapping[str, Corrupt] = {"clean": lambda pixels, _: pixels, **CORRUPTIONS}
    return {name: answer(corrupt) for name, corrupt in kinds.items()}


def _draw(
    histograms: Histograms, answers: Mapping[str, Answers], random: np.random.Generator
) -> list[Case]:
    """Return draws of clean images, of corrupted ones, and of those of which a part is."""
    clean = answers["clean"]
    total = len(clean.values)
    cases = []

    def add(kind: str, part: Answers, expected: float) -> None:
        drift = part.compare(histograms)
        fall = clean.accuracy - expected
        cases.append(Case(kind, fall, part.accuracy, expected, drift))

    def rows() -> np.ndarray:
        return random.choice(total, min(DRAWN, total), replace=False)

    for _ in range(CLEAN_DRAWS):
        add("clean", clean.select(rows()), clean.accuracy)
    for name, corrupted in answers.items():
        if name == "clean":
            continue
        for _ in range(4):
            add("all", corrupted.select(rows()), corrupted.accuracy)
        for part in PARTS:
            drawn = rows()
            mixed = clean.select(drawn).with_part(corrupted.select(drawn), round(part * len(drawn)))
            expected = (1 - part) * clean.accuracy + part * corrupted.accuracy
            add(f"{part:.0%}", mixed, expected)
    return cases


def _show(name: str, cases: list[Case]) -> None:
    clean = [case for case in cases if case.kind == "clean"]
    fallen = [case for case in cases if case.kind != "clean" and case.fall >= MIN_FALL]
    print(f"{name}: accuracy {np.mean([case.accuracy for case in clean]):.1%}")
    print(f"  false alarms in {len(clean)} clean draws: {_alarms(clean)}")
    for kind in ("all", *(f"{part:.0%}" for part in PARTS)):
        of_kind = [case for case in fallen if case.kind == kind]
        print(f"  {kind} corrupted, falls of 5 points: alarms in {_alarms(of_kind)}", flush=True)
    print("  | draws | estimates within 3 points | ceiling | in the interval | mean error |")
    print("  |---|---|---|---|---|")
    _show_estimates("clean", clean)
    for kind in ("all", "part"):
        of_kind = [
            case
            for case in cases
            if case.kind != "clean" and (case.kind == "all") == (kind == "all")
        ]
        for lowest, highest in BINS:
            chosen = [case for case in of_kind if lowest <= case.fall < highest]
            _show_estimates(f"{kind} corrupted, fall of {lowest:.0%} to {highest:.0%}", chosen)


def _alarms(cases: list[Case]) -> str:
    return f"{sum(not case.drift.is_like for case in cases)} of {len(cases)}"


def _show_estimates(name: str, cases: list[Case]) -> None:
    if not cases:
        return
    errors = np.array([case.drift.accuracy - case.accuracy for case in cases])
    best = np.array([case.ceiling - case.accuracy for case in cases])
    intervals = [case.drift.accuracy_interval for case in cases]
    covered = [
        lowest <= case.accuracy <= highest
        for case, (lowest, highest) in zip(cases, intervals, strict=True)
    ]
    print(
        f"  | {name}: {len(cases)} | {np.mean(np.abs(errors) <= 0.03):.0%} |"
        f" {np.mean(np.abs(best) <= 0.03):.0%} | {np.mean(covered):.0%} | {errors.mean():+.1%} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
