"""CutMix: images of a batch with a part of another one."""

import math
from dataclasses import replace
from random import Random

import torch

from train_pytorch_model.data.batch import Batch


def with_cutmix(batch: Batch, num_categories: int, probability: float, seed: int) -> Batch:
    """A batch for training with CutMix (Yun et al. 2019): its targets are probabilities (B, C),
    float32.

    With this `probability`, as `seed` decides, a box of each image shows the image before it at its
    place; it covers a uniformly distributed fraction of the area, which is the probability of the
    other's category. `v2.CutMix` draws from PyTorch's CPU generator, which a GPU's run does not
    seed. Never waits for a device.
    """
    images, classes = batch.images, batch.targets.unsqueeze(1)  # (B, 3, H, W), (B, 1)
    targets = torch.zeros(len(classes), num_categories, device=classes.device).scatter_(
        1, classes, 1.0
    )
    random = Random(seed)
    if random.random() >= probability:
        return replace(batch, targets=targets)
    height, width = images.shape[2:]
    side = math.sqrt(random.random())
    rows, columns = round(height * side), round(width * side)
    top, left = random.randint(0, height - rows), random.randint(0, width - columns)
    box = (..., slice(top, top + rows), slice(left, left + columns))
    mixed = images.clone(memory_format=torch.preserve_format)
    mixed[box] = images[box].roll(
        1, dims=0
    )  # the order of a batch is random: any neighbour will do
    area = rows * columns / (height * width)
    return replace(
        batch, images=mixed, targets=targets * (1 - area) + targets.roll(1, dims=0) * area
    )
