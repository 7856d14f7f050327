"""How many images at once fit into the memory of every process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from train_pytorch_model.distributed import World
from train_pytorch_model.errors import ModuleOutOfMemoryError
from train_pytorch_model.image_classifier.preprocessing import Framing

VALIDATED_AT_ONCE = 4  # times the training's images of the same size: they need a tenth of the memory
MAX_VALIDATED_AT_ONCE = 512


def largest_that_fits(try_out: Callable[[int], None], largest: int, least: int, world: World) -> int:
    """`largest` images, or as often halved as it takes, down to `least`: the same on all processes.

    `try_out` computes that many images in this process alone, without a word to the others: one that runs out
    of memory would leave them waiting. Raises `ModuleOutOfMemoryError`.
    """
    images = largest
    while not _fits(try_out, images):
        if images <= least:
            raise _nothing_fits(images)
        images = max(least, images // 2)
    # The least of all, as the largest of the negative.
    return -int(world.max(torch.tensor([-images], dtype=torch.int64, device=world.device)).item())


def validated_at_once(trained: int, training_framing: Framing, framing: Framing) -> int:
    """Images that a GPU validates at once, where it trains `trained` at once."""
    most = max(trained, min(VALIDATED_AT_ONCE * trained, MAX_VALIDATED_AT_ONCE))
    return max(1, most * training_framing.num_pixels // framing.num_pixels)


@contextmanager
def telling_what_fits(images: int, trained: int, least: int, batch_size: int) -> Iterator[None]:
    """Where memory runs out in the midst of a training, say what to do.

    `images` are computed at once. Of a batch of `batch_size` the next start trains half of those that were
    `trained` at once, and `least` at least. Raises `ModuleOutOfMemoryError`.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        if trained <= least:
            raise _nothing_fits(least) from error
        reason = " ".join(str(error).split())[:160]
        half = max(least, trained // 2)
        raise ModuleOutOfMemoryError(
            f"{images} images at once do not fit ({reason}). The same command goes on from the last"
            f" checkpoint and trains with {half} at once; or lower --batch-size, now {batch_size}, or the"
            " recipe's image_size and training_size.",
            images_at_once=half,
        ) from error


def _nothing_fits(least: int) -> ModuleOutOfMemoryError:
    what_fits = f"{least} images fit" if least > 1 else "one image fits"
    return ModuleOutOfMemoryError(
        f"not even {what_fits}. Lower the recipe's image_size and training_size, or take another"
        " architecture.",
        images_at_once=least,
    )


def _fits(try_out: Callable[[int], None], images: int) -> bool:
    try:
        try_out(images)
        return True
    except torch.OutOfMemoryError:
        pass
    torch.cuda.empty_cache()  # only now: the error held all that was computed
    return False
