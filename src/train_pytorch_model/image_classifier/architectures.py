"""The architectures that a model directory may name, and the only way from a name to a network.

A directory names a module and a class. They are looked up here and never imported: nothing outside of the
table can run.
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

_DESIGNER = "azureml.designer.modules.dl.pytorch.initialize_models.vision.classification"
_OURS = "train_pytorch_model"  # in files, the module of families that the designer does not have


@dataclass(frozen=True)
class Family:
    """Networks with the same head and option: one designer component, or one of our own."""

    class_name: str
    architectures: tuple[str, ...]
    head: str
    """Path of the last linear layer within the network."""
    module: str = _OURS
    option: str | None = None
    """The one boolean of `init_params` besides `pretrained`, a parameter of torchvision's builders."""
    image_size: int | None = None
    """The only input size in pixels, for networks with a fixed number of patches."""
    is_convolutional: bool = True
    """False for attention between patches, which is specific to the size that it is trained at."""


FAMILIES = (
    Family(
        class_name="ResNet",
        module=f"{_DESIGNER}.resnet",
        architectures=(
            *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152)),
            *("resnext50_32x4d", "resnext101_32x8d", "wide_resnet50_2", "wide_resnet101_2"),
        ),
        head="fc",
        option="zero_init_residual",
    ),
    Family(
        class_name="DenseNet",
        module=f"{_DESIGNER}.densenet",
        architectures=("densenet121", "densenet161", "densenet169", "densenet201"),
        head="classifier",
        option="memory_efficient",
    ),
    Family(
        class_name="EfficientNet",
        architectures=(
            *(f"efficientnet_b{scale}" for scale in range(8)),
            *(f"efficientnet_v2_{scale}" for scale in "sml"),
        ),
        head="classifier.1",
    ),
    Family(
        class_name="ConvNeXt",
        architectures=tuple(f"convnext_{scale}" for scale in ("tiny", "small", "base", "large")),
        head="classifier.2",
    ),
    Family(
        class_name="RegNet",
        architectures=tuple(
            f"regnet_{kind}_{flops}"
            for kind in "xy"
            for flops in ("400mf", "800mf", "1_6gf", "3_2gf", "8gf", "16gf", "32gf")
        ),
        head="fc",
    ),
    Family(
        class_name="MobileNetV3",
        architectures=("mobilenet_v3_small", "mobilenet_v3_large"),
        head="classifier.3",
    ),
    Family(
        class_name="VisionTransformer",
        architectures=("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32"),
        head="heads.head",
        image_size=224,
        is_convolutional=False,
    ),
    Family(
        class_name="SwinTransformer",
        architectures=tuple(f"swin_{scale}" for scale in ("t", "s", "b", "v2_t", "v2_s", "v2_b")),
        head="head",
        is_convolutional=False,
    ),
)

FAMILY_OF: Mapping[str, Family] = {
    architecture: family for family in FAMILIES for architecture in family.architectures
}
"""Architecture → its family: every name that can be built without timm."""

TIMM = "timm:"
INSTALL_TIMM = "pip install timm"
# Their size is in the recipe. They train at that size, which may be the only one.
TIMM_FAMILY = Family(class_name="timm", module="timm", architectures=(), head="", is_convolutional=False)
# Names in timm's registry only: by others, timm would read configurations from a folder or the hub.
_TIMM_NAME = re.compile(r"timm:[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?")


def is_of_timm(architecture: str) -> bool:
    """Whether an architecture is one of timm's: `timm:NAME`, or `timm:NAME.TAG` for certain weights of it."""
    return _TIMM_NAME.fullmatch(architecture) is not None


def is_known(architecture: str) -> bool:
    """Whether an architecture can be built; only timm, if it is there, knows that of one of its own."""
    return architecture in FAMILY_OF or is_of_timm(architecture)


def family_of(architecture: str) -> Family:
    """The family of an architecture; all of timm's are one. Raises `KeyError` for an unknown name."""
    return TIMM_FAMILY if is_of_timm(architecture) else FAMILY_OF[architecture]


def unknown_architecture_message(architecture: str) -> str:
    """The error message for an unknown architecture."""
    name = architecture.lower()
    first_of_family = [known for known in FAMILY_OF if known.startswith(name)]
    closest = first_of_family[:1] or difflib.get_close_matches(name, FAMILY_OF, n=1)
    meant = "".join(f" Did you mean {each}?" for each in closest)
    known = f"Known architectures: {', '.join(FAMILY_OF)}; and timm:NAME, if timm is installed."
    return f"{architecture} is not known.{meant} {known}"


def build(architecture: str, option: bool, num_classes: int) -> nn.Module:
    """The network with fresh random weights, drawn from torch's global generator.

    It maps images (B, 3, H, W), float32, to logits (B, num_classes).
    """
    if is_of_timm(architecture):
        return _build_with_timm(architecture, num_classes)
    family = FAMILY_OF[architecture]
    options = {family.option: option} if family.option else {}
    network: nn.Module = _torchvision_models().get_model(
        architecture, weights=None, num_classes=num_classes, **options
    )
    return network


def _torchvision_models() -> ModuleType:
    """torchvision's models, which take a second to load: not for callers that only need the names.

    And a second more with PyTorch's compiler, of which their detection operators want a single function: they
    get one that loads the compiler when it is called.
    """
    models, compiler = "torchvision.models", "torch._dynamo.utils"
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
    """The path of the last linear layer within a network that `build` made."""
    if not is_of_timm(architecture):
        return FAMILY_OF[architecture].head
    head = network.get_classifier()  # type: ignore[operator]
    names: list[str] = [name for name, module in network.named_modules() if module is head]
    return names[0]


class UnsupportedArchitectureError(Exception):
    """timm is missing, or does not have an architecture that can be trained here; the text says which."""


def _build_with_timm(architecture: str, num_classes: int) -> nn.Module:
    from torch import nn

    try:
        import timm
    except ModuleNotFoundError as error:
        raise UnsupportedArchitectureError(
            f"it needs timm, which is not installed: {INSTALL_TIMM}."
        ) from error

    name = architecture.removeprefix(TIMM)
    if not timm.is_model(name.partition(".")[0]):
        closest = difflib.get_close_matches(name, timm.list_models(), n=1)
        meant = "".join(f" Did you mean {TIMM}{close}?" for close in closest)
        raise UnsupportedArchitectureError(f"timm {timm.__version__} does not know it.{meant}")
    try:
        network: nn.Module = timm.create_model(name, num_classes=num_classes)
    except RuntimeError as error:  # an unknown tag
        raise UnsupportedArchitectureError(f"timm {timm.__version__}: {error}") from error
    head = network.get_classifier()  # type: ignore[operator]
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise UnsupportedArchitectureError(
            "it does not end in one linear layer with biases, as is needed here."
        )
    return network
