"""Build the network of a checked model directory, and choose which parameters are trained."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from train_pytorch_model.formats.model_directory import LABEL_MAP, ModelDirectory
from train_pytorch_model.image_classifier.architectures import FAMILY_OF, build
from train_pytorch_model.image_classifier.classifier import max_bytes
from train_pytorch_model.image_classifier.weights import WeightsError, fold_extra_head, read_state_dict

MAX_FILE_CLASSES = 22_000  # ImageNet-21k has the largest head among common pretrained weights
COUNTER = ".num_batches_tracked"  # of a batch norm; unused, and absent from weights from before 2018
OLD_NAMES = (
    (re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)"), r"\1\2"),  # of a DenseNet
    (re.compile(r"(mlp\.)linear_1\."), r"\g<1>0."),  # of a vision transformer
    (re.compile(r"(mlp\.)linear_2\."), r"\g<1>3."),
)
"""Pattern of a tensor name in torchvision's older weight files → its replacement in current networks."""


def build_model(directory: ModelDirectory, num_classes: int) -> nn.Module:
    """The directory's network with its weights, for `num_classes` categories.

    A head of another size is replaced: by random weights from torch's global generator if the directory is
    untrained, otherwise by zeros. The network maps (B, 3, H, W), float32, to logits (B, num_classes). Raises
    `InvalidModelDirectoryError`.
    """
    network = build(directory.architecture, directory.option, num_classes)
    if directory.is_pretrained or directory.is_trained:
        clear(network.get_submodule(FAMILY_OF[directory.architecture].head))
    try:
        load_weights(
            network, directory.architecture, directory.weights_path, len(directory.categories) or None
        )
    except WeightsError as error:
        raise directory.error(
            f"{directory.weights_path.name}: {error}",
            f"The weights of a {directory.architecture} are expected.",
        ) from error
    return network


def load_weights(
    network: nn.Module, architecture: str, path: Path, num_categories: int | None = None
) -> None:
    """Load a state dict; a head of another size is skipped.

    The file's head must have `num_categories` classes; None accepts any. Tensor names may be those of older
    torchvision versions and have a common prefix, such as DistributedDataParallel's. Raises `WeightsError`.
    """
    head = FAMILY_OF[architecture].head
    head_names = f"{head}.weight", f"{head}.bias"
    expected = network.state_dict()
    # The file's head may have more classes, such as an untrained network's 1000.
    bytes_per_class = 2 * 4 * expected[head_names[0]].shape[1]
    cap = max_bytes(network) + MAX_FILE_CLASSES * bytes_per_class
    state = fold_extra_head(read_state_dict(path, cap), head)
    state = without_common_prefix({_present_name(name): state[name] for name in state}, set(expected))
    state = {name: value for name, value in expected.items() if name.endswith(COUNTER)} | state
    num_classes = _num_classes(state, expected, head)
    if num_classes is not None:
        if num_categories not in (None, num_classes):
            raise WeightsError(f"its head has {num_classes} classes; {LABEL_MAP} names {num_categories}.")
        if num_classes != len(expected[head_names[0]]):
            state |= {name: expected[name] for name in head_names}
    _check_shapes(state, expected)
    network.load_state_dict(state)


def without_common_prefix(state: dict[str, Tensor], expected: set[str]) -> dict[str, Tensor]:
    """The tensors of the network, without the prefix of a module that wraps it in the file."""
    needed = {name for name in expected if not name.endswith(COUNTER)}
    prefixes = {name.removesuffix(known) for name in state for known in needed if name.endswith(known)}
    for prefix in sorted(prefixes - {""}, key=len):
        if all(prefix + known in state for known in needed):
            return {known: state[prefix + known] for known in expected if prefix + known in state}
    return state


def clear(layer: nn.Module) -> None:
    """Set a layer's parameters to zero."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()


def freeze_backbone(network: nn.Module, architecture: str) -> None:
    """Leave only the head trainable."""
    network.requires_grad_(False)
    network.get_submodule(FAMILY_OF[architecture].head).requires_grad_(True)


def divide_head(weights: Mapping[str, Tensor], architecture: str, temperature: float) -> dict[str, Tensor]:
    """The same weights, but a last layer whose logits are divided by a temperature."""
    head = FAMILY_OF[architecture].head
    divided = {name: weights[name] / temperature for name in (f"{head}.weight", f"{head}.bias")}
    return {**weights, **divided}


def _present_name(name: str) -> str:
    for pattern, replacement in OLD_NAMES:
        name = pattern.sub(replacement, name)
    return name


def _num_classes(state: dict[str, Tensor], expected: dict[str, Tensor], head: str) -> int | None:
    """The number of classes of the file's head; None for a malformed one, which `_check_shapes` reports."""
    weight, bias = state.get(f"{head}.weight"), state.get(f"{head}.bias")
    if weight is None or bias is None or weight.ndim != 2:
        return None
    features = expected[f"{head}.weight"].shape[1]
    return len(weight) if weight.shape[1] == features and bias.shape == weight.shape[:1] else None


def _check_shapes(state: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    problems = [f"{name} is missing" for name in expected if name not in state]
    problems += [f"{name} is unexpected" for name in state if name not in expected]
    problems += [
        f"{name} has shape {tuple(state[name].shape)}, expected {tuple(value.shape)}"
        for name, value in expected.items()
        if name in state and state[name].shape != value.shape
    ]
    problems += [
        f"{name} has dtype {state[name].dtype}, expected {value.dtype}"
        for name, value in expected.items()
        if name in state and state[name].is_floating_point() != value.is_floating_point()
    ]
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise WeightsError(f"{'; '.join(problems[:5])}{more}.")
