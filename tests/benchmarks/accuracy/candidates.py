"""Candidates for better defaults: each is one change on top of the program's defaults.

Changes that the recipe has no option for are made with PyTorch hooks, from outside.
"""

import copy
import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer
from torchvision.transforms import v2

from tests.benchmarks.accuracy import ours
from tests.benchmarks.accuracy.comparison import Contender, Epoch, Setting, arguments, compare
from tests.benchmarks.accuracy.ours import Prepare
from tests.trainings import Training
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.image_classifier.spec import IMAGENET_MEAN, IMAGENET_STD
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.networks.initialize import rescale_filters


def by_recipe(**entries: object) -> Callable[[Setting], Iterator[Epoch]]:
    """Train with these entries of the recipe."""
    return functools.partial(ours.train, recipe=Recipe.from_mapping(entries))


def trained_at(share: float) -> Callable[[Setting], Iterator[Epoch]]:
    """Train on random crops of this share of the side, to a multiple of 16 px; evaluate at the full
    side.
    """

    def train(setting: Setting) -> Iterator[Epoch]:
        size, smaller = _sizes(setting, share)
        recipe = Recipe(augmentation="random-resized-crop", image_size=size, training_size=smaller)
        return ours.train(setting, recipe)

    return train


def early_at(share: float) -> Callable[[Setting], Iterator[Epoch]]:
    """Train without crops, at this share of the side until the last fifth of the epochs."""

    def train(setting: Setting) -> Iterator[Epoch]:
        size, early = _sizes(setting, share)
        recipe = Recipe(augmentation="none", image_size=size, training_size=size, early_size=early)
        return ours.train(setting, recipe)

    return train


def _sizes(setting: Setting, share: float) -> tuple[int, int]:
    size = setting.images.image_size
    if size is None:
        raise SystemExit("--image-size is needed.")
    return size, round(share * size / 16) * 16


def batch_norm_momentum(momentum: float) -> Prepare:
    """Set the momentum of the running statistics; PyTorch's default is 0.1."""

    def prepare(training: Training) -> nn.Module:
        for module in training.engine.network.modules():
            if isinstance(module, _BatchNorm):
                module.momentum = momentum
        return training.engine.network

    return prepare


def averaged(decay: float) -> Prepare:
    """Evaluate an exponential moving average of the weights."""

    def prepare(training: Training) -> nn.Module:
        network, average = training.engine.network, copy.deepcopy(training.engine.network)
        steps = 0

        @torch.no_grad()
        def follow(*_: object) -> None:
            nonlocal steps
            steps += 1
            weight = 1 - min(
                decay, steps / (steps + 10)
            )  # else the initial weights would dominate for long
            for parameter, followed in zip(average.parameters(), network.parameters(), strict=True):
                parameter.lerp_(followed, weight)
            for buffer, copied in zip(average.buffers(), network.buffers(), strict=True):
                buffer.copy_(copied)

        training.engine.optimizer.register_step_post_hook(follow)
        return average

    return prepare


def growing(epochs_share: float, smallest: float) -> Prepare:
    """Grow training images from the share `smallest` of their side to all of it over the first
    epochs.
    """

    def prepare(training: Training) -> nn.Module:
        def shrink(network: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
            until = epochs_share * training.plan.config.epochs
            share = smallest + (1 - smallest) * (training.state.progress.epoch - 1) / max(
                until, 1e-9
            )
            if not network.training or share >= 1:
                return None
            side = round(inputs[0].shape[-1] * share)
            return (F.interpolate(inputs[0], size=side, mode="bilinear", antialias=True),)

        training.engine.network.register_forward_pre_hook(shrink)
        return training.engine.network

    return prepare


def head_rate(factor: float, body_from: int = 1) -> Prepare:
    """Multiply the schedule's learning rate for the head; train the rest from epoch `body_from`.

    The factor replaces the head's default one.
    """

    def prepare(training: Training) -> nn.Module:
        optimizer = training.engine.optimizer
        head = set(
            ours.head_of(
                training.engine.network, training.plan.inputs.model.architecture
            ).parameters()
        )
        for group in list(optimizer.param_groups):
            own = [parameter for parameter in group["params"] if parameter in head]
            group["params"] = [parameter for parameter in group["params"] if parameter not in head]
            optimizer.add_param_group(
                {**group, "params": own, "lr_factor": factor, "is_head": True}
            )

        def hold(optimizer: Optimizer, *_: object) -> None:
            for group in optimizer.param_groups:
                if not group.get("is_head") and training.state.progress.epoch < body_from:
                    group["lr"] = 0.0

        optimizer.register_step_pre_hook(hold)
        return training.engine.network

    return prepare


def hidden_layers_for_relu(training: Training) -> nn.Module:
    """Initialize linear layers before the head for ReLU (He et al., 2015)."""
    head = ours.head_of(training.engine.network, training.plan.inputs.model.architecture)
    for module in training.engine.network.modules():
        if isinstance(module, nn.Linear) and module is not head:
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return training.engine.network


def random_head(training: Training) -> nn.Module:
    """Initialize the head as PyTorch does."""
    ours.head_of(
        training.engine.network, training.plan.inputs.model.architecture
    ).reset_parameters()
    return training.engine.network


def head_of_length(length: float) -> Prepare:
    """Start the head's weights at random, scaled to a mean norm of `length` per category."""

    def prepare(training: Training) -> nn.Module:
        weight = ours.head_of(
            training.engine.network, training.plan.inputs.model.architecture
        ).weight
        with torch.no_grad():
            if not weight.any():
                nn.init.normal_(weight)
            weight.mul_(length / torch.linalg.vector_norm(weight, dim=1).mean())
        return training.engine.network

    return prepare


def zero_head(training: Training) -> nn.Module:
    """Start the head from zeros."""
    with torch.no_grad():
        for parameter in ours.head_of(
            training.engine.network, training.plan.inputs.model.architecture
        ).parameters():
            parameter.zero_()
    return training.engine.network


def all_of(*changes: Prepare) -> Prepare:
    """Combine changes that evaluate the network itself."""

    def prepare(training: Training) -> nn.Module:
        for change in changes:
            change(training)
        return training.engine.network

    return prepare


def filters_of_length(length: float | None) -> Prepare:
    """Start filters before a batch norm at this norm; with None, as the model directory does."""

    def prepare(training: Training) -> nn.Module:
        given = build_model(
            training.plan.inputs.model, training.plan.inputs.categories
        ).state_dict()
        if length is None:
            training.engine.network.load_state_dict(given)
        else:
            rescale_filters(training.engine.network, length)
        return training.engine.network

    return prepare


def decay_all(training: Training) -> nn.Module:
    """Apply weight decay to biases and batch norms too."""
    groups = training.engine.optimizer.param_groups
    for group in groups:
        group["weight_decay"] = max(each["weight_decay"] for each in groups)
    return training.engine.network


def trivial_augment() -> Prepare:
    """Change each training image in one random way, such as a rotation (Müller and Hutter 2021)."""
    transform = v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR, fill=127)

    def prepare(training: Training) -> nn.Module:
        def change(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
            if not training.engine.network.training:
                return None
            changed = torch.stack([transform(image) for image in inputs[0]])
            return (changed.contiguous(memory_format=torch.channels_last),)

        training.engine.model.register_forward_pre_hook(change)
        return training.engine.network

    return prepare


CONTENDERS = (
    Contender("defaults", ours.train),
    Contender("no crop", by_recipe(augmentation="none")),
    Contender("no flip", by_recipe(horizontal_flip=False)),
    Contender("no crop, no flip", by_recipe(augmentation="none", horizontal_flip=False)),
    Contender("padded crop", by_recipe(augmentation="padded-crop")),
    Contender("crops of 8 to 100 %", by_recipe(augmentation="random-resized-crop", crop_area=0.08)),
    Contender(
        "crops of 35 to 100 %", by_recipe(augmentation="random-resized-crop", crop_area=0.35)
    ),
    Contender("crops of 70 to 100 %", by_recipe(augmentation="random-resized-crop", crop_area=0.7)),
    Contender("label smoothing of 0.1", by_recipe(label_smoothing=0.1)),
    Contender("balanced classes", by_recipe(balance_classes=True)),
    Contender("blocks begin as the identity", functools.partial(ours.train, zero_init=True)),
    Contender(
        "batch norm momentum 0.01", functools.partial(ours.train, prepare=batch_norm_momentum(0.01))
    ),
    Contender(
        "batch norm momentum 0.03", functools.partial(ours.train, prepare=batch_norm_momentum(0.03))
    ),
    Contender("weights averaged, 0.99", functools.partial(ours.train, prepare=averaged(0.99))),
    Contender("weights averaged, 0.999", functools.partial(ours.train, prepare=averaged(0.999))),
    Contender("images grow from a half", functools.partial(ours.train, prepare=growing(0.6, 0.5))),
    Contender("judged at 1.15 of the size", functools.partial(ours.train, judged_at=1.15)),
    Contender("judged at 1.3 of the size", functools.partial(ours.train, judged_at=1.3)),
    Contender("head begins at random", functools.partial(ours.train, prepare=random_head)),
    Contender("head at 10 times the rate", functools.partial(ours.train, prepare=head_rate(10))),
    Contender(
        "head alone for an epoch", functools.partial(ours.train, prepare=head_rate(1, body_from=2))
    ),
    Contender(
        "head alone for an epoch, at 10 times the rate",
        functools.partial(ours.train, prepare=head_rate(10, body_from=2)),
    ),
    Contender("ImageNet's mean and deviation", by_recipe(mean=IMAGENET_MEAN, std=IMAGENET_STD)),
    Contender("warmup of an epoch", functools.partial(ours.train, warmup_epochs=1)),
    Contender("float32", by_recipe(precision="float32")),
    Contender(
        "filters begin as PyTorch has them",
        functools.partial(ours.train, prepare=filters_of_length(None)),
    ),
    Contender(
        "filters begin 0.1 long", functools.partial(ours.train, prepare=filters_of_length(0.1))
    ),
    Contender(
        "filters begin 0.4 long", functools.partial(ours.train, prepare=filters_of_length(0.4))
    ),
    Contender("head begins with zeros", functools.partial(ours.train, prepare=zero_head)),
    Contender(
        "batch norm momentum 0.1", functools.partial(ours.train, prepare=batch_norm_momentum(0.1))
    ),
    Contender(
        "batch norm momentum 0.2", functools.partial(ours.train, prepare=batch_norm_momentum(0.2))
    ),
    Contender(
        "batch norm momentum 0.3", functools.partial(ours.train, prepare=batch_norm_momentum(0.3))
    ),
    Contender(
        "hidden layers for ReLU", functools.partial(ours.train, prepare=hidden_layers_for_relu)
    ),
    Contender(
        "hidden layers for ReLU, head at random",
        functools.partial(ours.train, prepare=all_of(hidden_layers_for_relu, random_head)),
    ),
    Contender(
        "the same, momentum 0.2",
        functools.partial(
            ours.train,
            prepare=all_of(hidden_layers_for_relu, random_head, batch_norm_momentum(0.2)),
        ),
    ),
    Contender(
        "the same, momentum 0.3",
        functools.partial(
            ours.train,
            prepare=all_of(hidden_layers_for_relu, random_head, batch_norm_momentum(0.3)),
        ),
    ),
    Contender(
        "hidden layers for ReLU, momentum 0.2",
        functools.partial(
            ours.train, prepare=all_of(hidden_layers_for_relu, batch_norm_momentum(0.2))
        ),
    ),
    # Removes what the defaults do from 15 epochs where the images have one common size.
    Contender("no label smoothing", by_recipe(label_smoothing=0.0)),
    *(
        Contender(
            f"at {side} px", by_recipe(image_size=side, augmentation="none", crop_fraction=1.0)
        )
        for side in (48, 64, 96)
    ),
    Contender("weight decay on all", functools.partial(ours.train, prepare=decay_all)),
    *(
        Contender(f"trained at {share}/7 of the size", trained_at(share / 7))
        for share in (4, 5, 5.5, 6, 7)
    ),
    *(
        Contender(f"no crop, early {share}/7 of the size", early_at(share / 7))
        for share in (3, 4, 5, 7)
    ),
    Contender("head begins 0.29 long", functools.partial(ours.train, prepare=head_of_length(0.29))),
    *(
        Contender(
            f"head begins with zeros, at {factor} times the rate",
            functools.partial(ours.train, prepare=all_of(zero_head, head_rate(factor))),
        )
        for factor in (3, 10)
    ),
    Contender("head begins 0.17 long", functools.partial(ours.train, prepare=head_of_length(0.17))),
    *(
        Contender(
            f"head at {factor} times the rate",
            functools.partial(ours.train, prepare=head_rate(factor)),
        )
        for factor in (1, 3, 30, 100)
    ),
    Contender("TrivialAugment", functools.partial(ours.train, prepare=trivial_augment())),
    Contender("CutMix in half of the steps", by_recipe(cutmix=0.5)),
    Contender("no CutMix", by_recipe(cutmix=0.0)),
    Contender("SGD", by_recipe(optimizer="sgd")),
    Contender("AdamW", by_recipe(optimizer="adamw")),
    *(Contender(f"framing {mode}", by_recipe(framing=mode)) for mode in ("crop", "pad", "squash")),
)


if __name__ == "__main__":
    compare(CONTENDERS, arguments(__doc__).parse_args())
