"""The architectures that a model directory may name, and the only way from a name to a network.

A directory names a module and a class. They are looked up here and never imported: nothing outside
of the table can run.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_DL = "azureml.designer.modules.dl.pytorch.initialize_models.vision.classification"
_OURS = "train_pytorch_model"  # in files, the module of families that the designer does not have


@dataclass(frozen=True)
class Family:
    """Networks with the same head and option: one designer component, or one of our own."""

    class_name: str
    head: str  # path of the last linear layer within the network
    architectures: tuple[str, ...] = ()
    module: str = _OURS
    # The boolean of `init_params` besides `pretrained`, for torchvision's builders.
    option: str | None = None
    # The only side in px, for networks with a fixed number of patches.
    image_size: int | None = None
    # False for attention, which is specific to the size it is trained at.
    is_convolutional: bool = True


def _names(start: str, ends: str) -> tuple[str, ...]:
    return tuple(start + end for end in ends.split())


_REGNETS = "400mf 800mf 1_6gf 3_2gf 8gf 16gf 32gf"
FAMILIES = (
    Family(
        "ResNet",
        "fc",
        _names("resnet", "18 34 50 101 152")
        + _names("", "resnext50_32x4d resnext101_32x8d wide_resnet50_2 wide_resnet101_2"),
        f"{_DL}.resnet",
        "zero_init_residual",
    ),
    Family(
        "DenseNet",
        "classifier",
        _names("densenet", "121 161 169 201"),
        f"{_DL}.densenet",
        "memory_efficient",
    ),
    Family(
        "EfficientNet",
        "classifier.1",
        _names("efficientnet_", "b0 b1 b2 b3 b4 b5 b6 b7 v2_s v2_m v2_l"),
    ),
    Family("ConvNeXt", "classifier.2", _names("convnext_", "tiny small base large")),
    Family("RegNet", "fc", _names("regnet_x_", _REGNETS) + _names("regnet_y_", _REGNETS)),
    Family("MobileNetV3", "classifier.3", _names("mobilenet_v3_", "small large")),
    Family(
        "VisionTransformer",
        "heads.head",
        _names("vit_", "b_16 b_32 l_16 l_32"),
        image_size=224,
        is_convolutional=False,
    ),
    Family(
        "SwinTransformer", "head", _names("swin_", "t s b v2_t v2_s v2_b"), is_convolutional=False
    ),
)

FAMILY_OF: Mapping[str, Family] = {
    name: family for family in FAMILIES for name in family.architectures
}
"""Architecture → its family: every name that can be built without timm."""

TIMM = "timm:"
INSTALL_TIMM = "pip install timm"
# Their size is in the recipe. They train at that size, which may be the only one.
TIMM_FAMILY = Family("timm", "", module="timm", is_convolutional=False)
# Names in timm's registry only: by others, timm would read configurations from a folder or the hub.
_TIMM_NAME = re.compile(r"timm:[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?")


def is_of_timm(architecture: str) -> bool:
    """Return whether an architecture is one of timm's: `timm:NAME`, or `timm:NAME.TAG`.

    The tag names certain weights of it.
    """
    return _TIMM_NAME.fullmatch(architecture) is not None


def is_known(architecture: str) -> bool:
    """Return whether an architecture can be built.

    Only timm, if it is there, knows that of one of its architectures.
    """
    return architecture in FAMILY_OF or is_of_timm(architecture)


def family_of(architecture: str) -> Family:
    """Return the family of an architecture; all of timm's are one.

    Raises `KeyError` for an unknown name.
    """
    return TIMM_FAMILY if is_of_timm(architecture) else FAMILY_OF[architecture]


def unknown_architecture_message(architecture: str) -> str:
    """Return the error message for an unknown architecture."""
    name = architecture.lower()
    first_of_family = [known for known in FAMILY_OF if known.startswith(name)][:1]
    closest = first_of_family or difflib.get_close_matches(name, FAMILY_OF, n=1)
    meant = "".join(f" Did you mean {candidate}?" for candidate in closest)
    known = f"Known architectures: {', '.join(FAMILY_OF)}; and timm:NAME, if timm is installed."
    return f"{architecture} is not known.{meant} {known}"


def build(
    architecture: str, option: bool, num_classes: int, size: tuple[int, int] | None = None
) -> nn.Module:
    """Return a network that maps images (B, 3, H, W), float32, to logits (B, num_classes).

    A network of timm with a fixed size is built for images of this `size`, (height, width), by
    default its own; others take any. Torch's generator draws its weights.
    """
    if is_of_timm(architecture):
        return _build_with_timm(architecture, num_classes, size)
    family = FAMILY_OF[architecture]
    options = {family.option: option} if family.option else {}
    models = torchvision_models()
    network: nn.Module = models.get_model(
        architecture, weights=None, num_classes=num_classes, **options
    )
    return network


def torchvision_models() -> ModuleType:
    """Import torchvision's models, without PyTorch's compiler.

    Their detection operators want a single function of the compiler: they get one that loads it
    when it is called.
    """
    # After `import torch`, 0.14 s of CPU time instead of 1.25 s (PyTorch 2.14, torchvision 0.29,
    # five times each); every process of a run, and a served model at its start, would pay for it.
    models = "torchvision.models"
    compiler = "torch._dynamo.utils"
    if models in sys.modules or compiler in sys.modules:
        return importlib.import_module(models)
    stand_in = ModuleType(compiler)
    stand_in.is_compile_supported = lambda device: (  # type: ignore[attr-defined]
        importlib.import_module(compiler).is_compile_supported(device)
    )
    sys.modules[compiler] = stand_in
    try:
        return importlib.import_module(models)
    except ImportError:  # a version that wants more of it
        del sys.modules[compiler]
        return importlib.import_module(models)
    finally:
        if sys.modules.get(compiler) is stand_in:
            del sys.modules[compiler]


def head_of(architecture: str, network: nn.Module) -> str:
    """Return the path of the last linear layer within a network that `build` made."""
    if not is_of_timm(architecture):
        return FAMILY_OF[architecture].head
    head = network.get_classifier()  # type: ignore[operator]
    return next(str(name) for name, module in network.named_modules() if module is head)


class UnsupportedArchitectureError(Exception):
    """timm is missing, or does not have an architecture that can be trained here.

    The text says which.
    """


def has_fixed_size(network: nn.Module) -> bool:
    """Return whether a network of timm takes only images of the size for which it is built."""
    return bool(network.pretrained_cfg["fixed_input_size"])  # type: ignore[index]


def _size_options(name: str, size: tuple[int, int] | None) -> dict[str, tuple[int, int]]:
    """Return the options of timm that build a network for images of a size."""
    import timm

    # All networks of this kind have the option, none of the others needs it: tried with
    # 1,363 of the 1,371 names of timm 1.0.31.
    config = timm.get_pretrained_cfg(name)
    if size is None or config is None or not config.fixed_input_size:
        return {}
    return {} if config.input_size[1:] == size else {"img_size": size}


def _build_with_timm(
    architecture: str, num_classes: int, size: tuple[int, int] | None
) -> nn.Module:
    from torch import nn

    try:
        import timm
    except ModuleNotFoundError as error:
        reason = f"it needs timm, which is not installed: {INSTALL_TIMM}."
        raise UnsupportedArchitectureError(reason) from error
    name = architecture.removeprefix(TIMM)
    if not timm.is_model(name.partition(".")[0]):
        closest = difflib.get_close_matches(name, timm.list_models(), n=1)
        meant = "".join(f" Did you mean {TIMM}{close}?" for close in closest)
        raise UnsupportedArchitectureError(f"timm {timm.__version__} does not know it.{meant}")
    try:
        options = _size_options(name, size)
        network: nn.Module = timm.create_model(name, num_classes=num_classes, **options)
    # An unknown tag; a size of which it cannot make whole patches or windows.
    except (RuntimeError, AssertionError, ValueError, TypeError, ZeroDivisionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnsupportedArchitectureError(f"timm {timm.__version__}: {reason}") from error
    head = network.get_classifier()  # type: ignore[operator]
    if not isinstance(head, nn.Linear) or head.bias is None:
        reason = "it does not end in one linear layer with biases, as is needed here."
        raise UnsupportedArchitectureError(reason)
    return network
