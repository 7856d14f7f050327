"""How many images fit into the memory of every process at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from train_pytorch_model.distributed.world import World
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.words.errors import ModuleOutOfMemoryError
from train_pytorch_model.words.wording import parameter


def largest_that_fits(trial: Callable[[int], None], largest: int, least: int, world: World) -> int:
    """`largest` images, halved until they fit, down to `least`; the same on all processes.

    `trial` computes that many images in this process alone, without communication: a process that runs out
    of memory would leave the others waiting. Raises `ModuleOutOfMemoryError`.
    """
    images = largest
    while not _fits(trial, images):
        if images <= least:
            raise _nothing_fits(images)
        images = max(least, images // 2)
    # The minimum over all processes, as the maximum of the negatives.
    return -int(world.max(torch.tensor([-images], dtype=torch.int64, device=world.device)).item())


@contextmanager
def explaining_out_of_memory(plan: Plan, images: int) -> Iterator[None]:
    """If memory runs out while `images` are computed at once, raise `ModuleOutOfMemoryError`: what to do."""
    trained, least = plan.trained_at_once, plan.min_local_batch
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if trained <= least:
            raise _nothing_fits(least) from error
        reason = " ".join(str(error).split())[:160]
        half = max(least, trained // 2)
        raise ModuleOutOfMemoryError(
            f"{images} images at once do not fit ({reason}). The same command resumes from the last"
            f" checkpoint and trains with {half} at once; or lower {parameter('batch_size')}, now"
            f" {plan.config.batch_size}, or the recipe's image_size and training_size.",
            images_at_once=half,
        ) from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory has run out, on a GPU or on the CPU, whose allocator raises a plain `RuntimeError`."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


def _nothing_fits(least: int) -> ModuleOutOfMemoryError:
    what_fits = f"{least} images fit" if least > 1 else "one image fits"
    return ModuleOutOfMemoryError(
        f"not even {what_fits}. Lower the recipe's image_size and training_size, or take another"
        " architecture.",
        images_at_once=least,
    )


def _fits(trial: Callable[[int], None], images: int) -> bool:
    try:
        trial(images)
        return True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    torch.cuda.empty_cache()  # only now: the error kept the tensors alive
    return False
