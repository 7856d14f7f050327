"""Networks of timm with a fixed size, for images of another one.

A network of this kind is built for a size, and its weights may be of another: timm has functions
that resample position embeddings and tables of relative positions.
"""

import sys
from collections.abc import Mapping
from itertools import islice

from torch import Tensor, nn

from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.weights import WeightsError
from train_pytorch_model.networks.dry_runs import WithoutMemory, dry_run

# Sides in px of patches, and of windows of them: sizes that fit are multiples of one of these.
UNITS = (14, 16, 32, 64)
FAILURES = (RuntimeError, AssertionError, ValueError, TypeError, ZeroDivisionError)
FILTER = "checkpoint_filter_fn"  # in the modules of timm whose weights it can convert


def problem_with_size(network: nn.Module, size: tuple[int, int]) -> str:
    """Return why a network cannot take images of a size, (height, width); empty if it can."""
    try:
        dry_run(network, 2, *size)
    except FAILURES as error:
        return " ".join(str(error).split())[:120] or type(error).__name__
    return ""


def sides_near(architecture: str, side: int) -> list[int]:
    """Return the nearest sides in px, up to one below and one above, that an architecture takes."""
    below = sorted({side // unit * unit for unit in UNITS}, reverse=True)
    above = sorted({(side // unit + 1) * unit for unit in UNITS})
    sides = []
    for candidates in (below, above):
        fitting = (candidate for candidate in candidates if _takes(architecture, candidate))
        sides += list(islice(fitting, 1))
    return sides


def _takes(architecture: str, side: int) -> bool:
    """Return whether an architecture can be built for images of a side in px."""
    if side <= 0:
        return False
    try:
        with WithoutMemory():
            network = architectures.build(architecture, False, 2, (side, side))
    except architectures.UnsupportedArchitectureError:
        return False
    return not problem_with_size(network, (side, side))


def resample(
    network: nn.Module, head_names: set[str], state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return weights of another image size as timm resamples them for a network of timm.

    Weights that have the network's shapes, but for its head, are returned unchanged, and those of
    which timm has no function. Raises `WeightsError` if timm cannot do it.
    """
    expected = network.state_dict()
    is_of_its_size = all(
        name not in expected or value.shape == expected[name].shape
        for name, value in state.items()
        if name not in head_names
    )
    convert = getattr(sys.modules[type(network).__module__], FILTER, None)
    if is_of_its_size or convert is None:
        return dict(state)
    # By the name of its head, timm tells weights of its own from those of the authors.
    heads = {name: expected[name] for name in head_names}
    try:
        converted: dict[str, Tensor] = convert(heads | dict(state), network)
    except MemoryError:
        raise
    except Exception as error:  # whatever it meets in weights that are not its network's
        reason = " ".join(str(error).split())[:120]
        raise WeightsError(f"timm cannot resample it ({reason}).") from error
    return {
        name: value
        for name, value in converted.items()
        if name in expected and (name in state or name not in head_names)
    }
