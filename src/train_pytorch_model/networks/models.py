"""Build the network of a model directory, and load weights under any prefix and with any head.

And initial weights with which a network trains well from scratch at this component's learning
rates. The norm of a filter before a batch norm does not change what the network computes, but it
sets the effective learning rate: the learning rate over the squared norm (van Laarhoven, 2017).
torchvision initializes filters with norms around 1.4, at which 0.001, right for fine-tuning, is a
fiftieth of the best rate from scratch.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from train_pytorch_model.formats.model_directory import LABEL_MAP, ModelDirectory
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.classifier import max_bytes, recording_inputs
from train_pytorch_model.image_classifier.weights import (
    WeightsError,
    fold_extra_head,
    read_state_dict,
)

MAX_FILE_CLASSES = 22_000  # ImageNet-21k has the largest head among common pretrained weights
MAX_COPIES = (
    3  # in a training checkpoint: an average of the weights and the optimizer's state beside them
)
COUNTER = (
    ".num_batches_tracked"  # of a batch norm; unused, and absent from weights from before 2018
)
OLD_NAMES = (
    (re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)"), r"\1\2"),  # of a DenseNet
    (re.compile(r"(mlp\.)linear_1\."), r"\g<1>0."),  # of a vision transformer
    (re.compile(r"(mlp\.)linear_2\."), r"\g<1>3."),
)
"""Pattern of a tensor name in torchvision's older weight files → its replacement in current
networks."""
# Norm of each category's weights in the head. The filters' gradients pass through the head: from
# zeros, the filters start late, which costs 14 points on 300 drawings in 5 epochs; PyTorch's
# default norm costs 8 points on 300 CIFAR-10 images. In longer training zeros are better: by 5
# points on 1,000 CIFAR-10 images in 30 epochs. A head with more features learns proportionally
# faster and starts with a smaller norm: with 0.17, a ResNet-50 lost 4 points on 500 CIFAR-10
# images.
HEAD_NORM, HEAD_FEATURES = 0.17, 512
MIN_ZERO_HEAD_EPOCHS, MIN_ZERO_HEAD_SAMPLES = 12, 800  # samples seen of a category, in all epochs
LARGE_HEADS = (
    "EfficientNet",
    "MobileNetV3",
)  # weak features, which a head of small norm hardly uses
LARGE_HEAD_NORM = 1 / math.sqrt(3)  # the default of nn.Linear
RATE_PER_IMAGE = (
    0.4 / 256
)  # of a step, for filters of norm 1: measured, close to fast ImageNet recipes
MAX_RATE = 1.0  # reached at 640 images a step; beyond, linear scaling would need a warmup
MIN_NORM = 0.1  # below, the variance of the output approaches batch norm's epsilon, 1e-5


def build_untrained(directory: ModelDirectory, num_classes: int) -> nn.Module:
    """The directory's network with random weights. Raises `InvalidModelDirectoryError`."""
    try:
        return architectures.build(directory.architecture, directory.option, num_classes)
    except architectures.UnsupportedArchitectureError as error:
        raise directory.error(f"it is of {directory.architecture}: {error}") from error


def build_model(directory: ModelDirectory, categories: Sequence[str]) -> nn.Module:
    """The directory's network with its weights, for these categories.

    A trained directory's head keeps the rows of categories that it knows, by name; others get
    zeros. If an untrained one's head has another size, it is replaced by zeros if it is pretrained,
    otherwise by random weights from torch's global generator. The network maps (B, 3, H, W),
    float32, to logits (B, number of categories). Raises `InvalidModelDirectoryError`.
    """
    network = build_untrained(directory, len(categories))
    head = architectures.head_of(directory.architecture, network)
    if directory.is_pretrained:
        with torch.no_grad():
            for parameter in network.get_submodule(head).parameters():
                parameter.zero_()
    try:
        load_weights(network, head, directory.weights_path, directory.categories, categories)
    except WeightsError as error:
        raise directory.error(
            f"{directory.weights_path.name}: {error}",
            f"The weights of a {directory.architecture} are expected.",
        ) from error
    return network


def load_weights(
    network: nn.Module,
    head: str,
    path: Path,
    known: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> str:
    """Load a weights file into a network whose last layer is `head`; return, for people, what was
    loaded.

    If the file's head is of `known` categories, the network's head, of `categories`, takes its rows
    by name, and has zeros for all others. Otherwise a head that is missing or has another size is
    skipped. Names of tensors may be those of older torchvision versions, and have a common prefix,
    such as that of DistributedDataParallel. Raises `WeightsError`.
    """
    expected = network.state_dict()
    weight, bias = head_names = f"{head}.weight", f"{head}.bias"
    # The file's head may have more classes, such as an untrained network's 1000.
    cap = max_bytes(network) + MAX_FILE_CLASSES * 2 * 4 * expected[weight].shape[1]
    state = fold_extra_head(read_state_dict(path, MAX_COPIES * cap), head)
    for pattern, replacement in OLD_NAMES:
        state = {pattern.sub(replacement, name): value for name, value in state.items()}
    lacking = _classifier_lacking(state, expected, head) | set(head_names)
    state, prefix = _without_prefix(state, expected.keys() - lacking)
    if not known and not state.keys() & head_names:  # perhaps another head, such as a projection
        state = {name: value for name, value in state.items() if not name.startswith(f"{head}.")}
        none = "no last layer" if len(lacking) <= 2 else "none of the classifier's layers"
        num_tensors, about_head = len(state), f"; it has {none}"
        state |= {name: expected[name] for name in lacking}
    else:
        classes = _num_classes(state, expected, head)
        is_kept = classes in (None, len(expected[bias]))
        if known and classes not in (None, len(known)):
            raise WeightsError(f"its head has {classes} classes; {LABEL_MAP} names {len(known)}.")
        num_tensors = len(state) - 2 * (not is_kept)
        among = f", the last layer of {classes} classes among them"
        about_head = among if is_kept else f", but not the last layer of {classes} classes"
        if known and classes:
            for name in head_names:
                row_of, zeros = (
                    dict(zip(known, state[name], strict=True)),
                    torch.zeros_like(state[name][0]),
                )
                state[name] = torch.stack([row_of.get(category, zeros) for category in categories])
        elif not is_kept:
            state |= {name: expected[name] for name in head_names}
    state = {name: value for name, value in expected.items() if name.endswith(COUNTER)} | state
    _check_shapes(state, expected)
    network.load_state_dict(state)
    return f"{num_tensors} tensors{f' under {prefix}' if prefix else ''}{about_head}"


def _classifier_lacking(
    state: Mapping[str, Tensor], expected: Iterable[str], head: str
) -> set[str]:
    """The tensors of the module of `head`, such as `classifier` of a MobileNet, if the file lacks
    it.
    """
    module, _, _ = head.rpartition(".")
    if not module or any(f".{module}." in f".{name}" for name in state):
        return set()
    return {name for name in expected if name.startswith(f"{module}.")}


def _without_prefix(state: dict[str, Tensor], backbone: set[str]) -> tuple[dict[str, Tensor], str]:
    """The tensors of a network that a module wraps in the file, and the prefix of their names
    there.
    """
    needed = {name for name in backbone if not name.endswith(COUNTER)}
    any_name = min(needed)
    prefixes = {name.removesuffix(any_name) for name in state if name.endswith(any_name)}
    for prefix in sorted(prefixes, key=lambda prefix: (len(prefix), prefix)):
        part = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
        if part.keys() >= needed:
            return part, prefix
    return state, ""


def _num_classes(state: dict[str, Tensor], expected: dict[str, Tensor], head: str) -> int | None:
    """The number of classes of the file's head; None for a malformed one, which `_check_shapes`
    reports.
    """
    weight, bias = state.get(f"{head}.weight"), state.get(f"{head}.bias")
    if weight is None or bias is None or weight.ndim != 2:
        return None
    features = expected[f"{head}.weight"].shape[1]
    return len(weight) if weight.shape[1] == features and bias.shape == weight.shape[:1] else None


def _check_shapes(state: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    problems = [f"{name} is missing" for name in expected if name not in state]
    problems += [f"{name} is unexpected" for name in state if name not in expected]
    both = [(name, state[name], value) for name, value in expected.items() if name in state]
    problems += [
        f"{name} has shape {tuple(found.shape)}, expected {tuple(value.shape)}"
        for name, found, value in both
        if found.shape != value.shape
    ]
    problems += [
        f"{name} has dtype {found.dtype}, expected {value.dtype}"
        for name, found, value in both
        if found.is_floating_point() != value.is_floating_point()
    ]
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise WeightsError(f"{'; '.join(problems[:5])}{more}.")


def freeze_backbone(network: nn.Module, architecture: str) -> None:
    """Leave only the head trainable."""
    network.requires_grad_(False)
    network.get_submodule(architectures.head_of(architecture, network)).requires_grad_(True)


class OnFrozenBackbone(nn.Module):
    """A model with a frozen backbone, which also takes its features in place of images."""

    def __init__(self, model: nn.Module, head: nn.Module) -> None:
        """`model` maps uint8 images (B, 3, H, W) to logits (B, C); `head` is its last layer."""
        super().__init__()
        self.model, self.head = model, head

    def forward(self, given: Tensor) -> Tensor:
        """Map uint8 images (B, 3, H, W), or their features (B, D), to logits (B, C)."""
        logits: Tensor = self.model(given) if given.ndim == 4 else self.head(given)
        return logits

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """The features (B, D) of uint8 images (B, 3, H, W)."""
        with recording_inputs(self.head) as found:
            self.model(images)
        return found[0]


def initialize_from_scratch(
    network: nn.Module,
    architecture: str,
    epochs: int,
    images_per_category: float,
    peak_lr: float | None,
    batch_size: int,
) -> None:
    """Rescale random weights for training with a peak learning rate, in steps of `batch_size`
    images.

    The head gets a fixed norm, as the filters do, or is zeroed if there are many images or epochs.
    A hidden layer before it gets the standard deviation for ReLU (He and others, 2015): MobileNetV3
    has one, which torchvision initializes with a fifth of that. `peak_lr` is SGD's; without it,
    filters are left alone.
    """
    head_name = architectures.head_of(architecture, network)
    head = network.get_submodule(head_name)
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        for layer in network.get_submodule(head_name.rpartition(".")[0]).children():
            if isinstance(layer, nn.Linear) and layer is not head:
                _scale(layer.weight, math.sqrt(2 / layer.in_features))
        norm = HEAD_NORM * min(1.0, math.sqrt(HEAD_FEATURES / head.in_features))
        if architectures.family_of(architecture).class_name in LARGE_HEADS:
            norm = LARGE_HEAD_NORM
        elif (
            epochs >= MIN_ZERO_HEAD_EPOCHS or epochs * images_per_category >= MIN_ZERO_HEAD_SAMPLES
        ):
            norm = 0.0
        _scale(head.weight, norm / math.sqrt(head.in_features))
        head.bias.zero_()
    if peak_lr is not None:
        rescale_filters(network, math.sqrt(peak_lr / min(MAX_RATE, RATE_PER_IMAGE * batch_size)))


def rescale_filters(network: nn.Module, filter_norm: float) -> None:
    """Rescale every filter before a batch norm of its own to this norm, at least `MIN_NORM`.

    The running statistics are rescaled as well, so the network computes the same as before, up to
    rounding. Filters without such a batch norm stay as they are.
    """
    # timm's batch norms contain an activation.
    layers = [m for m in network.modules() if isinstance(m, _BatchNorm) or not list(m.children())]
    with torch.no_grad():
        for layer, batch_norm in pairwise(layers):
            if not (isinstance(layer, nn.Conv2d) and isinstance(batch_norm, _BatchNorm)):
                continue
            # In a DenseNet, some batch norms also normalize earlier layers' features.
            if layer.out_channels == batch_norm.num_features:
                norms = torch.linalg.vector_norm(layer.weight, dim=(1, 2, 3))
                factor = torch.where(norms > 0, max(filter_norm, MIN_NORM) / norms, 1.0)
                layer.weight.mul_(factor[:, None, None, None])
                if batch_norm.running_mean is not None and batch_norm.running_var is not None:
                    batch_norm.running_mean.mul_(factor)
                    batch_norm.running_var.mul_(factor**2)


def _scale(weight: Tensor, deviation: float) -> None:
    """Rescale random weights to a standard deviation; constant weights stay as they are."""
    present = weight.std()
    if present > 0:
        weight.mul_(deviation / present)
