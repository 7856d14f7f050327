"""Does the heat of a heat map lie in what the category depends on? Print how much of it, and what
it costs.

    python -m tests.benchmarks.data_quality.heat

Grey scenes are painted with a square of a colour at a random place, a sixteenth of the area. The
colour is the category; another category has no square, so that none can be told by what is missing.
A small convolutional network is trained by the program, a small transformer with AdamW, without
which it learns too slowly.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from tests.benchmarks.data_quality.training import Images, Setting, train_model
from tests.benchmarks.timing import machine
from tests.painting import COLOURS, paint_scene
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.inputs.scoring import open_trained_model
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.networks.heat_maps import heat_map

NOTHING = "nothing"
CATEGORIES = (*COLOURS, NOTHING)
CONVOLUTIONAL, TRANSFORMER = ("mobilenet_v3_small", 96), ("timm:test_vit", 160)
NUM_TRAINING, NUM_VALIDATION, NUM_MEASURED = 480, 60, 60
EPOCHS = {CONVOLUTIONAL: 6, TRANSFORMER: 8}


def main() -> None:
    """Print the table."""
    print(f"{machine()}\n\n| network | px | accuracy | heat inside | heat map | forward |")
    print("|---|---|---|---|---|---|")
    for kind, trained in ((CONVOLUTIONAL, _train_by_program()), (TRANSFORMER, _train_with_adam())):
        print(
            f"| {kind[0]} | {kind[1]} | {' | '.join(_measure(trained.eval(), kind[1]))} |",
            flush=True,
        )


def paint(side: int, first: int, count: int) -> Iterator[tuple[Image.Image, str, slice, slice]]:
    """Yield images with their categories, and the rows and columns of the cue."""
    random, cue = np.random.default_rng(first), side // 4
    for index in range(first, first + count):
        category = CATEGORIES[random.integers(len(CATEGORIES))]
        pixels = np.array(paint_scene(index, (side, side)).convert("L").convert("RGB"))
        rows, columns = (
            slice(start, start + cue) for start in random.integers(0, side - cue, 2).tolist()
        )
        if category != NOTHING:
            noise = random.integers(-25, 26, (cue, cue, 3))
            pixels[rows, columns] = (np.asarray(COLOURS[category]) + noise).clip(0, 255)
        yield Image.fromarray(pixels), category, rows, columns


def _measure(network: nn.Module, side: int) -> list[str]:
    """Accuracy, share of the heat that is in the cue, and CPU times; `network` takes pixels from 0
    to 255.
    """
    normalize, inner = network.children()
    is_right, inside, spent_s, forward_s = [], [], 0.0, 0.0
    for image, category, rows, columns in paint(side, 200_000, NUM_MEASURED):
        pixels = normalize(torch.from_numpy(np.array(image)).permute(2, 0, 1)[None])
        started_at = time.process_time()
        with torch.inference_mode():
            predicted = CATEGORIES[int(inner(pixels).argmax())]
        forward_s += time.process_time() - started_at
        is_right.append(predicted == category)
        if category == NOTHING:
            continue
        started_at = time.process_time()
        heat = heat_map(inner, pixels)
        spent_s += time.process_time() - started_at
        found = torch.zeros(side, side)
        if heat is not None:
            found = F.interpolate(
                torch.from_numpy(heat)[None, None], (side, side), mode="bilinear"
            )[0, 0]
        inside.append(float(found[rows, columns].sum() / found.sum().clamp(min=1e-9)))
    return [
        f"{np.mean(is_right):.1%}",
        f"{np.mean(inside):.1%}",
        f"{1000 * spent_s / len(inside):.0f} ms",
        f"{1000 * forward_s / len(is_right):.0f} ms",
    ]


def _train_by_program() -> nn.Module:
    architecture, side = CONVOLUTIONAL
    with tempfile.TemporaryDirectory() as folder:

        def write(part: str, first: int, count: int) -> Images:
            files = []
            for index, (image, category, *_) in enumerate(paint(side, first, count)):
                path = Path(folder) / part / category / f"{index}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                image.save(path)
                files.append((path, category))
            return files

        training, validation = write("a", 0, NUM_TRAINING), write("b", 100_000, NUM_VALIDATION)
        setting = Setting(architecture, Recipe(image_size=side), EPOCHS[CONVOLUTIONAL], 0.05, 1)
        model = train_model(setting, Path(folder) / "run", training, validation)
        directory, spec = open_trained_model(model, None)
        return nn.Sequential(Normalize(spec.mean, spec.std), build_model(directory, CATEGORIES))


def _train_with_adam() -> nn.Module:
    architecture, side = TRANSFORMER
    torch.manual_seed(1)
    network = nn.Sequential(
        Normalize((0.5,) * 3, (0.5,) * 3), build(architecture, False, len(CATEGORIES))
    )
    images, targets = _tensors(side, NUM_TRAINING)
    steps = EPOCHS[TRANSFORMER] * NUM_TRAINING // 32
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(EPOCHS[TRANSFORMER]):
        for batch in torch.randperm(NUM_TRAINING).view(-1, 32):
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return network


def _tensors(side: int, count: int) -> tuple[Tensor, Tensor]:
    painted = list(paint(side, 0, count))
    pixels = np.stack([np.asarray(image) for image, *_ in painted])
    targets = [CATEGORIES.index(category) for _, category, *_ in painted]
    return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.tensor(targets)


if __name__ == "__main__":
    main()
