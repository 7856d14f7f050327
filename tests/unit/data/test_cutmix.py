"""CutMix: which pixels and targets a batch gets, and how often."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cutmix import with_cutmix
from train_pytorch_model.training.metrics import Sums, ranks_of

CATEGORIES = 7


def batch_of(count: int, height: int = 12, width: int = 20) -> Batch:
    """A batch in which image i has pixels i and category i."""
    images = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(
        count, 3, height, width
    )
    images = images.contiguous(memory_format=torch.channels_last)
    return Batch(images, torch.arange(count), np.arange(count), count, {})


def mixed_batch(batch: Batch, probability: float, seed: int) -> Batch:
    """The batch with CutMix, whose images have one category each."""
    return with_cutmix(batch, torch.eye(CATEGORIES)[batch.targets], probability, seed)


def test_a_box_shows_the_previous_image_and_its_area_weights_the_targets() -> None:
    batch = batch_of(5)
    areas = []
    for seed in range(50):
        mixed = mixed_batch(batch, 1.0, seed)
        assert mixed.images.is_contiguous(memory_format=torch.channels_last)
        before = batch.images.roll(1, 0)
        is_other = mixed.images == before
        assert torch.equal(
            is_other, is_other[:1, :1].expand_as(is_other)
        )  # one box, the same in all images
        assert torch.equal(torch.where(is_other, before, batch.images), mixed.images)
        rows, columns = is_other[0, 0].any(dim=1), is_other[0, 0].any(dim=0)
        assert torch.equal(is_other[0, 0], rows[:, None] & columns[None])
        area = float(is_other[0, 0].float().mean())
        one_hot = torch.eye(CATEGORIES)[:5]
        torch.testing.assert_close(mixed.targets, one_hot * (1 - area) + one_hot.roll(1, 0) * area)
        areas.append(area)
    assert torch.equal(batch.images, batch_of(5).images)  # cached images are not modified
    assert 0.35 < np.mean(areas) < 0.65
    assert min(areas) < 0.1
    assert max(areas) > 0.9


def test_the_seed_decides_which_batches_get_boxes() -> None:
    batch = batch_of(4)
    mixed = [mixed_batch(batch, 0.5, seed) for seed in range(200)]
    again = [mixed_batch(batch, 0.5, seed) for seed in range(200)]
    assert all(torch.equal(a.images, b.images) for a, b in zip(mixed, again, strict=True))
    assert all(torch.equal(a.targets, b.targets) for a, b in zip(mixed, again, strict=True))
    whole = [one for one in mixed if one.images is batch.images]
    assert 70 < len(whole) < 130
    assert all(torch.equal(one.targets, torch.eye(CATEGORIES)[:4]) for one in whole)


@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_of_fewer_than_two_images_is_unchanged(count: int) -> None:
    batch = batch_of(count)
    for seed in range(10):
        mixed = mixed_batch(batch, 1.0, seed)
        assert torch.equal(mixed.images, batch.images)
        torch.testing.assert_close(mixed.targets, torch.eye(CATEGORIES)[:count])


def test_hits_are_counted_by_the_larger_share() -> None:
    batch = replace(batch_of(2), targets=torch.tensor([0, 1]))
    logits = torch.eye(CATEGORIES)[:2]  # right about both images
    targets = torch.eye(CATEGORIES)[:2] * 0.6 + torch.eye(CATEGORIES)[:2].roll(1, 0) * 0.4
    by_class, by_share = Sums(torch.device("cpu")), Sums(torch.device("cpu"))
    by_class.add(torch.tensor(1.0), ranks_of(logits, batch.targets))
    by_share.add(torch.tensor(1.0), ranks_of(logits, targets))
    assert torch.equal(by_class.values, by_share.values)
