"""Compare contenders that train in turn from the same seeds, initial weights and images; print one
table.

Every held-out image is judged by an epoch that it did not help to choose: where a contender keeps
its best epoch, each half of the held-out images is judged by the epoch that is best on the other
half.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tests.benchmarks.accuracy import images as sources
from tests.benchmarks.accuracy import tiny
from tests.benchmarks.accuracy.images import Images
from tests.benchmarks.timing import machine
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.inputs.opening import OpenedInputs, open_training_inputs
from train_pytorch_model.stories.init_model import initialize

assert tiny.NAMES  # networks that timm knows now
Keep = Literal["last", "lowest loss", "highest top-1"]
JUDGED_AT_ONCE = 100


@dataclass(frozen=True)
class Epoch:
    """Losses and hits of the network after an epoch, for each held-out image in order."""

    losses: np.ndarray
    """(N,), nats."""
    hits: np.ndarray
    """(N,), bool: whether the top prediction is right."""


@dataclass(frozen=True)
class Setting:
    """Everything that the contenders of a seed share."""

    images: Images
    architecture: str
    weights: Path | None
    """A state dict to start from; None from scratch."""
    config: TrainConfig
    untrained: Path
    """Path for an untrained model directory."""
    device: torch.device
    """Device of training and evaluation."""

    def open(self, recipe: Recipe, zero_init: bool = False) -> OpenedInputs:
        """Return the training inputs for a recipe, with the initial weights that all contenders
        share.
        """
        options = ModelOptions(
            architecture=self.architecture,
            weights_file=self.weights,
            zero_init_residual=zero_init,
            recipe=recipe,
        )
        initialize(options, self.config.random_seed, self.untrained)
        training, held_out = self.images.training, self.images.held_out
        return open_training_inputs(self.untrained, training, held_out, self.config.epochs)


@dataclass(frozen=True)
class Contender:
    """A way to train."""

    name: str
    train: Callable[[Setting], Iterator[Epoch]]
    """Yields each epoch until the training is over."""
    keep: Keep = "lowest loss"
    """Which epoch becomes the model."""


@dataclass(frozen=True)
class Result:
    """One contender and seed: accuracies as fractions, loss in nats, over all held-out images."""

    contender: str
    seed: int
    top1: float
    loss: float
    balanced: float
    """Mean of the per-category top-1 accuracies."""
    curve: Sequence[float]
    """Held-out loss of each epoch."""
    curve_top1: Sequence[float]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that all comparisons share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--images", type=Path, help="class folders in train/ and val/; digits if not given"
    )
    parser.add_argument(
        "--image-size", type=int, help="side in px; the images' own size if not given"
    )
    parser.add_argument(
        "--per-category", type=int, nargs="+", help="training images per category, in turn"
    )
    parser.add_argument(
        "--categories", default=":", help="a slice of the categories, such as 5: or :5"
    )
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument(
        "--weights", type=Path, help="a state dict to start from; from scratch if not given"
    )
    parser.add_argument("--epochs", type=int, default=TrainConfig.epochs)
    parser.add_argument("--batch-size", type=int, default=TrainConfig.batch_size)
    parser.add_argument("--learning-rate", type=float, default=TrainConfig.learning_rate)
    parser.add_argument("--patience", type=int, default=TrainConfig.patience)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of contenders, counted from 0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--device", type=torch.device, default="cpu", help="to train on, such as cuda:0"
    )
    parser.add_argument(
        "--record", type=Path, help="JSON lines of all results; those in it are not repeated"
    )
    return parser


def compare(contenders: Sequence[Contender], chosen: argparse.Namespace) -> None:
    """Train all contenders and print the table; the first one is the baseline."""
    if chosen.only:
        contenders = [contenders[number] for number in chosen.only]
    key = _key(chosen)
    results = _recorded(chosen.record, key)
    done = {(result.contender, result.seed) for result in results}
    for seed in range(1, chosen.seeds + 1):
        for contender in contenders:
            if (contender.name, seed) not in done:
                results.append(_run(contender, chosen, seed))
                _record(chosen.record, key, results[-1])
    show(
        contenders,
        [result for result in results if result.seed <= chosen.seeds],
        key,
        chosen.device,
    )


@contextmanager
def setting_of(chosen: argparse.Namespace, seed: int) -> Iterator[Setting]:
    """The setting that the flags describe, for a seed; its temporary files are deleted on exit."""
    torch.set_num_threads(chosen.threads)
    config = TrainConfig(
        epochs=chosen.epochs,
        batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        random_seed=seed,
        patience=chosen.patience,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if chosen.images is None:
            images = sources.digits(folder / "digits")
        else:
            images = sources.folders(chosen.images, chosen.image_size)
        if chosen.categories != ":" or chosen.per_category is not None:
            bounds = [int(bound) if bound else None for bound in chosen.categories.split(":")]
            images = sources.some_of(
                images, folder / "some", slice(*bounds), chosen.per_category, seed
            )
        untrained = folder / "untrained"
        yield Setting(images, chosen.architecture, chosen.weights, config, untrained, chosen.device)


def judged(network: nn.Module, pixels: Tensor, targets: Tensor) -> Epoch:
    """Evaluate a network on uint8 images (N, 3, H, W), in float32 as `score` and `evaluate` do."""
    network.eval()
    with torch.inference_mode():
        logits = torch.cat([network(some) for some in torch.split(pixels, JUDGED_AT_ONCE)]).float()
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
    return Epoch(losses.cpu().numpy(), (logits.argmax(dim=1) == targets).cpu().numpy())


def kept(epochs: Sequence[Epoch], keep: Keep, seed: int) -> Epoch:
    """Return each image's loss and hit from the epoch that is kept, chosen without that image."""
    if keep == "last":
        return epochs[-1]
    num_images = len(epochs[0].losses)
    order = np.random.default_rng(seed).permutation(num_images)
    losses, hits = np.empty(num_images), np.empty(num_images, dtype=bool)
    for judging, judged_by in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        if keep == "lowest loss":
            best = min(epochs, key=lambda epoch: float(epoch.losses[judging].mean()))
        else:
            best = max(epochs, key=lambda epoch: float(epoch.hits[judging].mean()))
        losses[judged_by], hits[judged_by] = best.losses[judged_by], best.hits[judged_by]
    return Epoch(losses, hits)


def show(
    contenders: Sequence[Contender],
    results: Sequence[Result],
    key: Mapping[str, object],
    device: torch.device,
) -> None:
    """Print means, spread over the seeds, and seed-by-seed differences to the first contender."""
    print(f"{machine()}, trained on {device}")
    print(
        ", ".join(f"{name} {value}" for name, value in key.items() if value is not None), end="\n\n"
    )
    print(
        "| | top-1, % | balanced, % | loss | epochs | top-1 against the first | loss against the"
        " first |"
    )
    print("|---|---|---|---|---|---|---|")
    first = {result.seed: result for result in results if result.contender == contenders[0].name}
    for contender in contenders:
        own = [result for result in results if result.contender == contender.name]
        if not own:
            continue
        paired = [(result, first[result.seed]) for result in own if result.seed in first]
        cells = [
            contender.name,
            _spread([100 * result.top1 for result in own]),
            _spread([100 * result.balanced for result in own]),
            _spread([result.loss for result in own], digits=3),
            f"{statistics.mean(len(result.curve) for result in own):.1f}",
            _difference([100 * (result.top1 - other.top1) for result, other in paired]),
            _difference([result.loss - other.loss for result, other in paired], digits=3),
        ]
        print(f"| {' | '.join(cells)} |")
    print(
        f"\n{len(first)} seeds, mean ± standard deviation; against the first, ± standard error of"
        " the mean."
    )


def _run(contender: Contender, chosen: argparse.Namespace, seed: int) -> Result:
    started_at = time.perf_counter()
    with setting_of(chosen, seed) as setting:
        targets = open_image_directory(setting.images.held_out, "held out").class_indices
        epochs = list(contender.train(setting))
    final = kept(epochs, contender.keep, seed)
    per_category = [final.hits[targets == index].mean() for index in np.unique(targets)]
    result = Result(
        contender=contender.name,
        seed=seed,
        top1=float(final.hits.mean()),
        loss=float(final.losses.mean()),
        balanced=float(np.mean(per_category)),
        curve=[round(float(epoch.losses.mean()), 5) for epoch in epochs],
        curve_top1=[round(float(epoch.hits.mean()), 5) for epoch in epochs],
    )
    elapsed_s = time.perf_counter() - started_at
    print(
        f"seed {result.seed}, {result.contender}: top-1 {result.top1:.1%}, loss {result.loss:.3f},"
        f" {len(epochs)} epochs, {elapsed_s:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return result


def _key(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that comparable results share."""
    return {
        "images": chosen.images.name if chosen.images else "digits",
        "image_size": chosen.image_size,
        "per_category": chosen.per_category,
        "categories": chosen.categories,
        "architecture": chosen.architecture,
        "weights": chosen.weights.name if chosen.weights else None,
        "epochs": chosen.epochs,
        "batch_size": chosen.batch_size,
        "learning_rate": chosen.learning_rate,
        "patience": chosen.patience,
    }


def _recorded(path: Path | None, key: Mapping[str, Any]) -> list[Result]:
    if path is None or not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [Result(**record["result"]) for record in records if record["key"] == key]


def _record(path: Path | None, key: Mapping[str, Any], result: Result) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps({"key": key, "result": asdict(result)}) + "\n")


def _spread(values: Sequence[float], digits: int = 1) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"


def _difference(values: Sequence[float], digits: int = 1) -> str:
    if len(values) < 2 or not any(values):
        return ""
    error = statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):+.{digits}f} ± {error:.{digits}f}"
