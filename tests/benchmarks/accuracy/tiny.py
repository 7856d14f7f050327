"""Tiny networks without batch norms, for images of 32 px: timm's own take minutes of a CPU for each
epoch.
"""

from typing import Any

import timm
from timm.models import register_model
from torch import nn

SIDE = 32  # px


def vit_mini_32(**settings: Any) -> nn.Module:
    """A ViT of 4 blocks on 64 patches of 4 px: 0.2 million weights."""
    sizes = {"img_size": SIDE, "patch_size": 4, "embed_dim": 64, "depth": 4, "num_heads": 4}
    return _made("vit_tiny_patch16_224", **sizes, **settings)


def swin_mini_32(**settings: Any) -> nn.Module:
    """A Swin of three stages, from 256 patches of 2 px, in windows of 4: 0.3 million weights."""
    sizes = {"img_size": SIDE, "patch_size": 2, "window_size": 4, "embed_dim": 32}
    return _made(
        "swin_tiny_patch4_window7_224", **sizes, depths=(1, 1, 2), num_heads=(2, 4, 8), **settings
    )


def convnext_mini_32(**settings: Any) -> nn.Module:
    """A ConvNeXt of four stages, from 256 patches of 2 px: 0.5 million weights."""
    return _made(
        "convnext_atto", patch_size=2, depths=(1, 1, 2, 1), dims=(24, 48, 96, 192), **settings
    )


def _made(name: str, **settings: Any) -> nn.Module:
    """timm's network of this name, changed, for images of 32 px."""
    settings |= {"pretrained": False, "pretrained_cfg": None, "pretrained_cfg_overlay": None}
    network: Any = timm.create_model(name, **settings)
    network.pretrained_cfg = {**network.pretrained_cfg, "input_size": (3, SIDE, SIDE)}
    return network  # type: ignore[no-any-return]


NAMES = [register_model(build).__name__ for build in (vit_mini_32, swin_mini_32, convnext_mini_32)]
