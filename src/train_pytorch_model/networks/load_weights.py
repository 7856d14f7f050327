"""Weights of files, given to networks with another last layer, other names or fewer tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from train_pytorch_model.formats.model_directory import LABEL_MAP
from train_pytorch_model.image_classifier.classifier import max_bytes
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
