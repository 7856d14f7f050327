"""The loader of timm, for the contenders that train with it."""

import os

import timm.data
import torch
from torch import Tensor
from torch.utils.data import DataLoader


def timm_loader(
    images: str,
    size: int,
    batch_size: int,
    device: torch.device,
    is_training: bool = True,
    **options: object,
) -> "DataLoader[list[Tensor]]":
    """Return timm's loader, with its own augmentation and one worker per usable core.

    On a GPU with its prefetcher and pinned memory.
    """
    has_gpu = device.type == "cuda"
    loader: DataLoader[list[Tensor]] = timm.data.create_loader(
        timm.data.create_dataset("", images, is_training=is_training),
        input_size=(3, size, size),
        batch_size=batch_size,
        is_training=is_training,
        color_jitter=None,
        interpolation="bilinear",
        num_workers=len(os.sched_getaffinity(0)),
        use_prefetcher=has_gpu,
        pin_memory=has_gpu,
        device=device,
        **options,
    )
    return loader
