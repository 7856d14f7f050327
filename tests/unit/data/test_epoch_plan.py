"""The plan of an epoch: which process takes which images at which step."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train_pytorch_model.data.epoch_plan import (
    PlannedBatch,
    num_training_steps,
    plan_training,
    plan_validation,
)

sizes = st.integers(1, 200)
batch_sizes = st.integers(2, 33)  # training refuses a batch size below the minimum share
world_sizes = st.integers(1, 4)
min_local_batchs = st.integers(1, 2)


def plans(
    num_images: int,
    batch_size: int,
    min_local_batch: int,
    world_size: int,
    epoch: int = 0,
    seed: int = 1,
) -> list[list[PlannedBatch]]:
    """The plan of every process."""
    return [
        plan_training(num_images, batch_size, min_local_batch, seed, epoch, rank, world_size)
        for rank in range(world_size)
    ]


def images_of(plan: list[PlannedBatch]) -> list[int]:
    return [int(index) for batch in plan for index in batch.indices]


@given(sizes, batch_sizes, min_local_batchs, world_sizes)
def test_every_image_is_trained_on_exactly_once(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int
) -> None:
    seen = [
        index
        for plan in plans(num_images, batch_size, min_local_batch, world_size)
        for index in images_of(plan)
    ]
    # One image is left over if batches have at most two images, or if it is the only one.
    left_out = (
        min_local_batch == 2
        and num_images % 2 == 1
        and (num_images == 1 or batch_size * world_size == 2)
    )
    assert len(seen) == len(set(seen)) == num_images - left_out
    assert set(seen) <= set(range(num_images))


@given(sizes, batch_sizes, min_local_batchs, world_sizes)
def test_no_share_is_below_the_minimum_or_above_the_batch_size(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int
) -> None:
    shares = {
        len(batch.indices)
        for plan in plans(num_images, batch_size, min_local_batch, world_size)
        for batch in plan
    }
    most = max(
        batch_size, 2 * min_local_batch - 1
    )  # three images cannot be split into shares of two
    assert shares <= {0, *range(min_local_batch, most + 1)}


@given(sizes, batch_sizes, min_local_batchs, world_sizes)
def test_all_processes_have_the_same_steps_and_agree_on_their_sizes(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int
) -> None:
    all_plans = plans(num_images, batch_size, min_local_batch, world_size)
    steps = num_training_steps(num_images, batch_size, min_local_batch, world_size)
    assert [len(plan) for plan in all_plans] == [steps] * world_size
    for batches in zip(*all_plans, strict=True):
        assert {batch.global_count for batch in batches} == {
            sum(len(batch.indices) for batch in batches)
        }


@given(sizes, batch_sizes, min_local_batchs, world_sizes)
def test_every_step_is_split_evenly(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int
) -> None:
    for batches in zip(*plans(num_images, batch_size, min_local_batch, world_size), strict=True):
        shares = [len(batch.indices) for batch in batches if len(batch.indices)]
        assert max(shares) - min(shares) <= 1


@given(sizes, batch_sizes, min_local_batchs, world_sizes)
def test_an_epoch_has_as_few_steps_as_possible_and_their_sizes_differ_by_at_most_one(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int
) -> None:
    plan, *_ = plans(num_images, batch_size, min_local_batch, world_size)
    counts = [batch.global_count for batch in plan]
    assert max(counts, default=0) - min(counts, default=0) <= 1
    assert len(plan) <= math.ceil(num_images / (batch_size * world_size))


@given(sizes, batch_sizes, min_local_batchs, world_sizes, st.integers(0, 200))
def test_a_resumed_epoch_continues_its_plan(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int, steps_done: int
) -> None:
    whole = plan_training(num_images, batch_size, min_local_batch, 1, 0, 0, world_size)
    images_done = sum(batch.global_count for batch in whole[:steps_done])
    rest = plan_training(num_images, batch_size, min_local_batch, 1, 0, 0, world_size, images_done)
    assert images_of(rest) == images_of(whole[steps_done:])
    assert [batch.global_count for batch in rest] == [
        batch.global_count for batch in whole[steps_done:]
    ]


@pytest.mark.parametrize(
    ("num_images", "batch_size", "min_local_batch", "world_size", "expected"),
    [
        pytest.param(10, 4, 1, 1, [[4, 3, 3]], id="one process"),
        pytest.param(12, 4, 1, 1, [[4, 4, 4]], id="whole batches"),
        pytest.param(9, 4, 2, 1, [[3, 3, 3]], id="a last batch of one is avoided"),
        pytest.param(5, 2, 2, 1, [[2, 2]], id="a last batch of one that batch norm cannot take"),
        pytest.param(5, 2, 1, 1, [[2, 2, 1]], id="a last batch of one"),
        pytest.param(11, 4, 1, 2, [[3, 3], [3, 2]], id="two processes"),
        pytest.param(
            9, 4, 1, 2, [[3, 2], [2, 2]], id="one image more than the batch of two processes"
        ),
        pytest.param(3, 4, 2, 2, [[3], [0]], id="too few for two shares of two"),
        pytest.param(13, 4, 2, 3, [[3, 2], [2, 2], [2, 2]], id="three processes"),
        pytest.param(2, 16, 1, 4, [[1], [1], [0], [0]], id="fewer images than processes"),
        pytest.param(1, 16, 2, 1, [[]], id="too few for one step"),
    ],
)
def test_shares_of_every_step(
    num_images: int,
    batch_size: int,
    min_local_batch: int,
    world_size: int,
    expected: list[list[int]],
) -> None:
    shares = [
        [len(batch.indices) for batch in plan]
        for plan in plans(num_images, batch_size, min_local_batch, world_size)
    ]
    assert shares == expected


def test_every_epoch_and_seed_has_its_own_reproducible_order() -> None:
    def order(epoch: int, seed: int) -> list[int]:
        return images_of(plans(100, 8, 1, 1, epoch, seed)[0])

    orders = [order(epoch, seed) for epoch in (0, 1) for seed in (1, -2)]
    assert len({tuple(order) for order in orders}) == 4
    assert order(0, 1) == orders[0]
    assert orders[0] != sorted(orders[0])


@given(st.integers(0, 200), st.integers(1, 33), world_sizes)
def test_every_image_is_validated_exactly_once(
    num_images: int, batch_size: int, world_size: int
) -> None:
    seen = [
        index
        for rank in range(world_size)
        for index in images_of(plan_validation(num_images, batch_size, rank, world_size))
    ]
    assert sorted(seen) == list(range(num_images))


@given(st.integers(0, 200), st.integers(1, 33), world_sizes)
def test_the_composition_of_validation_batches_does_not_depend_on_the_number_of_processes(
    num_images: int, batch_size: int, world_size: int
) -> None:
    def compositions(size: int) -> set[tuple[int, ...]]:
        return {
            tuple(batch.indices.tolist())
            for rank in range(size)
            for batch in plan_validation(num_images, batch_size, rank, size)
        }

    assert compositions(world_size) == compositions(1)


def test_a_validation_batch_counts_only_its_own_images() -> None:
    batches = plan_validation(10, 4, rank=1, world_size=2)
    assert [batch.indices.tolist() for batch in batches] == [[4, 5, 6, 7]]
    assert [batch.global_count for batch in batches] == [4]


def test_indices_are_int64() -> None:
    assert plan_training(5, 2, 1, 1, 0, 0, 1)[0].indices.dtype == np.int64
    assert plan_validation(5, 2, 0, 1)[0].indices.dtype == np.int64
