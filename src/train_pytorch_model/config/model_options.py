"""What an untrained model is: its architecture, initial weights and recipe."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from train_pytorch_model.config.options import OptionalName, OptionalPath, Switch
from train_pytorch_model.config.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What an untrained model is: its architecture, initial weights and recipe."""

    architecture: Annotated[str, tyro.conf.arg(metavar="NAME")] = "resnet18"
    (
        "One of torchvision's, such as resnet50 (`init-model --list`), or timm:NAME, if timm is"
        " installed."
    )
    pretrained: Switch = False
    """Start from the best ImageNet weights of torchvision, or from timm's; downloads them."""
    weights: OptionalName = None
    """Start from the torchvision weights of this name, such as IMAGENET1K_V1; downloads them."""
    weights_file: OptionalPath = None
    (
        "Start from the weights in this file: safetensors, or a state dict or checkpoint of"
        " torch.save."
    )
    zero_init_residual: Switch = False
    """ResNet only: initialize every residual block as the identity."""
    memory_efficient: Switch = False
    """DenseNet only: save memory in training by recomputing activations, which takes more time."""
    recipe: tyro.conf.OmitArgPrefixes[Recipe] = field(default_factory=Recipe)
