"""Running out of memory, and what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ModuleOutOfMemoryError
from train_pytorch_model.training.plan import Plan


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory has run out, on a GPU or on the CPU, whose allocator raises a plain
    `RuntimeError`.
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(
        error
    )


def nothing_fits(least: int) -> ModuleOutOfMemoryError:
    fit = f"{least} images fit" if least > 1 else "one image fits"
    what = f"not even {fit}. Lower the recipe's image_size and training_size, or take another architecture."
    return ModuleOutOfMemoryError(what, images_at_once=least)


@contextmanager
def explaining_out_of_memory(plan: Plan, trained_at_once: int, images: int) -> Iterator[None]:
    """If memory runs out while `images` are computed at once, raise `ModuleOutOfMemoryError`: what
    to do.
    """
    trained, least = trained_at_once, plan.min_local_batch
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if trained <= least:
            raise nothing_fits(least) from error
        reason = " ".join(str(error).split())[:160]
        half = max(least, trained // 2)
        raise ModuleOutOfMemoryError(
            f"{images} images at once do not fit ({reason}). The same command resumes from the last"
            f" checkpoint and trains with {half} at once; or lower {parameter('batch_size')}, now"
            f" {plan.config.batch_size}, or the recipe's image_size and training_size.",
            images_at_once=half,
        ) from error
