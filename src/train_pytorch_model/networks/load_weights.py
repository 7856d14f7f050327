"""Weights of files, given to networks with another last layer, other names or fewer tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from train_pytorch_model.networks.image_sizes import resample

MAX_FILE_CLASSES = 22_000  # ImageNet-21k has the largest head among common pretrained weights
MAX_PROBLEMS = 5  # in a message
MAX_COPIES = 3  # in a training checkpoint: an average of the weights, and the optimizer's state
# Of a batch norm; unused, and absent from weights from before 2018.
COUNTER = ".num_batches_tracked"
OLD_NAMES = (
    (re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)"), r"\1\2"),  # of a DenseNet
    (re.compile(r"(mlp\.)linear_1\."), r"\g<1>0."),  # of a vision transformer
    (re.compile(r"(mlp\.)linear_2\."), r"\g<1>3."),
)
"""Patterns of tensor names in torchvision's older files, with replacements in current networks."""


@dataclass(frozen=True)
class _Fitted:
    """The tensors of a file, with a head for the network."""

    state: dict[str, Tensor]
    num_tensors: int  # of them, how many are the file's
    about_head: str  # for people: whether the file's head is among them


def load_weights(
    network: nn.Module,
    head: str,
    path: Path,
    known: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> str:
    """Load a weights file into a network whose last layer is `head`; return what was, for people.

    If the file's head is of `known` categories, the network's head, of `categories`, takes its rows
    by name, and has zeros for all others. Otherwise a head that is missing or has another size is
    skipped. Names of tensors may be those of older torchvision versions, and have a common prefix,
    such as that of DistributedDataParallel. Position embeddings of timm's networks may be those of
    another image size. Raises `WeightsError`.
    """
    expected = network.state_dict()
    head_names = _names_in(head)
    # The file's head may have more classes, such as an untrained network's 1000.
    num_features = expected[f"{head}.weight"].shape[1]
    max_size = max_bytes(network) + MAX_FILE_CLASSES * 2 * 4 * num_features
    state = read_state_dict(path, MAX_COPIES * max_size)
    state = fold_extra_head(state, head, len(known) or MAX_FILE_CLASSES)
    state = _with_current_names(state)
    lacking = _classifier_lacking(state, expected, head) | head_names
    state, prefix = _without_prefix(state, expected.keys() - lacking)

    state = resample(network, head_names, state)
    if known or state.keys() & head_names:
        fitted = _fit_head(state, expected, head, known, categories)
    else:  # perhaps with another head, such as a projection
        fitted = _skip_head(state, expected, head, lacking)
    counters = {name: value for name, value in expected.items() if name.endswith(COUNTER)}
    complete = counters | fitted.state
    _check_shapes(complete, expected)
    network.load_state_dict(complete)
    under_prefix = f" under {prefix}" if prefix else ""
    return f"{fitted.num_tensors} tensors{under_prefix}{fitted.about_head}"


def _names_in(head: str) -> set[str]:
    return {f"{head}.weight", f"{head}.bias"}


def _with_current_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by the names that current networks of torchvision have."""
    for pattern, replacement in OLD_NAMES:
        state = {pattern.sub(replacement, name): value for name, value in state.items()}
    return state


def _skip_head(
    state: dict[str, Tensor], expected: dict[str, Tensor], head: str, lacking: set[str]
) -> _Fitted:
    """Return a file's tensors without a head; what it is `lacking` stays as the network has it."""
    backbone = {name: value for name, value in state.items() if not name.startswith(f"{head}.")}
    missing = "no last layer" if len(lacking) <= 2 else "none of the classifier's layers"
    of_network = {name: expected[name] for name in lacking}
    return _Fitted(backbone | of_network, len(backbone), f"; it has {missing}")


def _fit_head(
    state: dict[str, Tensor],
    expected: dict[str, Tensor],
    head: str,
    known: Sequence[str],
    categories: Sequence[str],
) -> _Fitted:
    """Return a file's tensors with its head, its rows by category, or a new head.

    Raises `WeightsError` if the head does not have `known` categories.
    """
    head_names = _names_in(head)
    num_classes = _num_classes(state, expected, head)
    if known and num_classes not in (None, len(known)):
        raise WeightsError(f"its head has {num_classes} classes; {LABEL_MAP} names {len(known)}.")
    is_head_loaded = num_classes in (None, len(expected[f"{head}.bias"]))
    num_tensors = len(state)
    about_head = f", the last layer of {num_classes} classes among them"
    if not is_head_loaded:
        num_tensors -= len(head_names)
        about_head = f", but not the last layer of {num_classes} classes"
    if known and num_classes:
        state |= {name: _rows_for(categories, known, state[name]) for name in head_names}
    elif not is_head_loaded:
        state |= {name: expected[name] for name in head_names}
    return _Fitted(state, num_tensors, about_head)


def _rows_for(categories: Sequence[str], known: Sequence[str], rows: Tensor) -> Tensor:
    """Return the rows of categories, from those of `known` ones; zeros for all others."""
    row_of = dict(zip(known, rows, strict=True))
    zeros = torch.zeros_like(rows[0])
    return torch.stack([row_of.get(category, zeros) for category in categories])


def _classifier_lacking(
    state: Mapping[str, Tensor], expected: Iterable[str], head: str
) -> set[str]:
    """Return the names in the head's module, such as `classifier`, if the file lacks them all."""
    module, _, _ = head.rpartition(".")
    if not module:
        return set()
    if any(f".{module}." in f".{name}" for name in state):
        return set()
    return {name for name in expected if name.startswith(f"{module}.")}


def _without_prefix(state: dict[str, Tensor], backbone: set[str]) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a network that a module wraps in the file, and their names' prefix."""
    needed = {name for name in backbone if not name.endswith(COUNTER)}
    any_name = min(needed)
    prefixes = {name.removesuffix(any_name) for name in state if name.endswith(any_name)}
    for prefix in sorted(prefixes, key=lambda prefix: (len(prefix), prefix)):
        wrapped = {
            name.removeprefix(prefix): value
            for name, value in state.items()
            if name.startswith(prefix)
        }
        if wrapped.keys() >= needed:
            return wrapped, prefix
    return state, ""


def _num_classes(state: dict[str, Tensor], expected: dict[str, Tensor], head: str) -> int | None:
    """Return the number of classes of the file's head.

    None for a malformed one, which `_check_shapes` reports.
    """
    weight = state.get(f"{head}.weight")
    bias = state.get(f"{head}.bias")
    if weight is None or bias is None or weight.ndim != 2:
        return None
    num_classes, num_features = weight.shape
    if num_features != expected[f"{head}.weight"].shape[1] or bias.shape != (num_classes,):
        return None
    return num_classes


def _check_shapes(state: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Raise `WeightsError` unless the file has the network's tensors."""
    problems = _problems_with(state, expected)
    if problems:
        rest = len(problems) - MAX_PROBLEMS
        more = f", and {rest} more" if rest > 0 else ""
        raise WeightsError(f"{'; '.join(problems[:MAX_PROBLEMS])}{more}.")


def _problems_with(state: dict[str, Tensor], expected: dict[str, Tensor]) -> list[str]:
    """Return what is wrong with a file's tensors: names first, then shapes, then dtypes."""
    problems = [f"{name} is missing" for name in expected if name not in state]
    problems += [f"{name} is unexpected" for name in state if name not in expected]
    pairs = [(name, state[name], value) for name, value in expected.items() if name in state]
    for name, loaded, value in pairs:
        if loaded.shape != value.shape:
            shapes = f"shape {tuple(loaded.shape)}, expected {tuple(value.shape)}"
            problems.append(f"{name} has {shapes}")
    for name, loaded, value in pairs:
        if loaded.is_floating_point() != value.is_floating_point():
            problems.append(f"{name} has dtype {loaded.dtype}, expected {value.dtype}")
    return problems
