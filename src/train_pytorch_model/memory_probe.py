"""How many images at once fit into the memory of every process."""

from collections.abc import Callable

import torch

from train_pytorch_model.distributed import World
from train_pytorch_model.errors import ModuleOutOfMemoryError


def largest_that_fits(try_out: Callable[[int], None], largest: int, least: int, world: World) -> int:
    """`largest` images, or as often halved as it takes, down to `least`: the same on all processes.

    `try_out` computes so many images in this process alone, without a word to the others: one that runs out
    of memory would leave them waiting. Raises `ModuleOutOfMemoryError`.
    """
    images = largest
    while not _fits(try_out, images):
        if images <= least:
            raise ModuleOutOfMemoryError(
                f"not even {images} images fit. Lower the recipe's image_size, or take another architecture.",
                images_at_once=images,
            )
        images = max(least, images // 2)
    # The least of all, as the largest of the negative.
    return -int(world.max(torch.tensor([-images], dtype=torch.int64, device=world.device)).item())


def _fits(try_out: Callable[[int], None], images: int) -> bool:
    try:
        try_out(images)
        return True
    except torch.OutOfMemoryError:
        pass
    torch.cuda.empty_cache()  # only now: the error held all that was computed
    return False
