"""CutMix (Yun et al., 2019): in some batches, a box of each image shows another image, and counts as such.

torchvision's `v2.CutMix` draws from PyTorch's global CPU generator, which is not seeded at each step of a run
on a GPU: a resumed run would draw other boxes.
"""

import math
from dataclasses import replace
from random import Random

import torch

from train_pytorch_model.data.loader import Batch


def with_cutmix(batch: Batch, num_categories: int, probability: float, seed: int) -> Batch:
    """A batch for training with CutMix: its targets become probabilities (B, number of categories), float32.

    With this `probability`, as `seed` decides, a box of each image shows the image before it, at the same
    position; the fraction of the area that it covers is uniformly distributed. An image's target is then the
    other image's category with that probability, and its own with the rest. Never waits for a device.
    """
    images, classes = batch.images, batch.targets.unsqueeze(1)  # (B, 3, H, W), (B, 1)
    targets = torch.zeros(len(classes), num_categories, device=classes.device).scatter_(1, classes, 1.0)
    random = Random(seed)
    if random.random() >= probability:
        return replace(batch, targets=targets)
    height, width = images.shape[2:]
    side = math.sqrt(random.random())
    rows, columns = round(height * side), round(width * side)
    top, left = random.randint(0, height - rows), random.randint(0, width - columns)
    box = (..., slice(top, top + rows), slice(left, left + columns))
    mixed = images.clone(memory_format=torch.preserve_format)
    mixed[box] = images[box].roll(1, dims=0)  # the order of a batch is random: any neighbour will do
    area = rows * columns / (height * width)
    return replace(batch, images=mixed, targets=targets * (1 - area) + targets.roll(1, dims=0) * area)
