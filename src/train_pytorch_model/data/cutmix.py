"""CutMix: images of a batch with a part of another one."""

import math
from dataclasses import replace
from random import Random

import torch
from torch import Tensor

from train_pytorch_model.data.batch import Batch


def with_cutmix(batch: Batch, targets: Tensor, probability: float, seed: int) -> Batch:
    """Return a batch for training with CutMix (Yun et al. 2019).

    `targets`, those of the batch, are probabilities (B, C), float32, and so are the result's. With
    this `probability`, as `seed` decides, a box of each image shows the same box of the image
    before it. The box covers a uniformly distributed fraction of the area, with which the other
    image's targets count. `v2.CutMix` draws from PyTorch's CPU generator, which a GPU's run does
    not seed. Never waits for a device.
    """
    images = batch.images  # (B, 3, H, W)
    random = Random(seed)
    if random.random() >= probability:
        return replace(batch, targets=targets)
    height, width = images.shape[2:]
    side = math.sqrt(random.random())
    rows = round(height * side)
    columns = round(width * side)
    top = random.randint(0, height - rows)
    left = random.randint(0, width - columns)
    box = (..., slice(top, top + rows), slice(left, left + columns))
    mixed = images.clone(memory_format=torch.preserve_format)
    # The order of a batch is random: any neighbour will do.
    mixed[box] = images[box].roll(1, dims=0)
    area = rows * columns / (height * width)
    mixed_targets = targets * (1 - area) + targets.roll(1, dims=0) * area
    return replace(batch, images=mixed, targets=mixed_targets)
