"""Which images a process takes in each step of an epoch."""

from dataclasses import dataclass

import numpy as np

from train_pytorch_model.config.seeds import derive_seed


@dataclass(frozen=True)
class PlannedBatch:
    """One process's images of a step."""

    # (B,), int64: indices in the dataset; empty if other processes take all of them.
    indices: np.ndarray
    global_count: int  # images of all processes in this step


def plan_training(
    num_images: int,
    batch_size: int,
    min_local_batch: int,
    seed: int,
    epoch: int,
    rank: int,
    world_size: int,
    images_done: int = 0,
) -> list[PlannedBatch]:
    """Return one process's batches of an epoch.

    Over all processes each image comes once, in a new order every epoch. The first `images_done`
    images of that order are skipped: they were trained before. All steps have equally many images,
    give or take one: a last step of two left-over images would move the weights as far as a step of
    sixteen. No process gets fewer than `min_local_batch` images: a step that is too small for all
    goes to fewer of them, and one that is too small for a single process is dropped.
    """
    rng = np.random.default_rng(derive_seed(seed, "order", epoch))
    order = rng.permutation(num_images)[images_done:]
    steps = _num_steps(len(order), batch_size * world_size)
    batches = []
    for indices in np.array_split(order, steps):
        # With fewer processes than there are, those of a higher rank get an empty batch.
        num_processes = min(world_size, len(indices) // min_local_batch)
        if num_processes == 0:
            continue
        local = indices[:0]
        if rank < num_processes:
            local = np.array_split(indices, num_processes)[rank]
        # A copy: a view would keep the whole permutation in memory.
        batches.append(PlannedBatch(local.copy(), len(indices)))
    return batches


def num_training_steps(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int
) -> int:
    """Return the steps of an epoch: the length of every process's plan."""
    steps = _num_steps(num_images, batch_size * world_size)
    fewest, larger = divmod(num_images, steps)
    if fewest >= min_local_batch:
        return steps
    return larger if fewest + 1 >= min_local_batch else 0


def _num_steps(num_images: int, global_batch_size: int) -> int:
    """Return the fewest steps that hold all images; without any, one that is empty."""
    return max(1, -(-num_images // global_batch_size))


def plan_validation(
    num_images: int, batch_size: int, rank: int, world_size: int
) -> list[PlannedBatch]:
    """Return one process's batches of consecutive images.

    They are the same for any number of processes, and dealt out round-robin.
    """
    starts = range(rank * batch_size, num_images, batch_size * world_size)
    batches = [np.arange(start, min(start + batch_size, num_images)) for start in starts]
    return [PlannedBatch(indices, len(indices)) for indices in batches]
