"""Running out of memory, and what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ModuleOutOfMemoryError
from train_pytorch_model.training.plan import Plan


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory has run out, on a GPU or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "DefaultCPUAllocator" in str(error)  # which raises a plain `RuntimeError`


def nothing_fits(num_images: int) -> ModuleOutOfMemoryError:
    """Return the error for memory that does not hold the fewest images of a step."""
    what = f"{num_images} images fit" if num_images > 1 else "one image fits"
    return ModuleOutOfMemoryError(
        f"not even {what}. Lower the recipe's image_size and training_size, or take another"
        " architecture.",
        images_at_once=num_images,
    )


@contextmanager
def explaining_out_of_memory(plan: Plan, trained_at_once: int, images: int) -> Iterator[None]:
    """Raise `ModuleOutOfMemoryError` if memory runs out while `images` are computed at once.

    It names the next, smaller number to train with, from `trained_at_once`.
    """
    smallest = plan.min_local_batch
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if trained_at_once <= smallest:
            raise nothing_fits(smallest) from error
        reason = " ".join(str(error).split())[:160]
        half = max(smallest, trained_at_once // 2)
        raise ModuleOutOfMemoryError(
            f"{images} images at once do not fit ({reason}). The same command resumes from the last"
            f" checkpoint and trains with {half} at once; or lower {parameter('batch_size')}, now"
            f" {plan.config.batch_size}, or the recipe's image_size and training_size.",
            images_at_once=half,
        ) from error
