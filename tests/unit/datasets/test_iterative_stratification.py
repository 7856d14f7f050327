"""Parts of images with any number of categories have each of them by its fraction."""

import numpy as np
import pytest

from train_pytorch_model.datasets.iterative_stratification import assign_groups


def labels_of(num_images: int, rates: list[float]) -> np.ndarray:
    random = np.random.default_rng(1)
    labels: np.ndarray = random.random((num_images, len(rates))) < np.array(rates)
    return labels


@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.5, 0.5)])
def test_each_category_is_split_by_the_fractions(fractions: tuple[float, ...]) -> None:
    labels = labels_of(1000, [0.5, 0.2, 0.05, 0.02])
    groups = np.arange(1000)
    part_of = assign_groups(labels, groups, fractions, np.random.default_rng(0))
    for part, fraction in enumerate(fractions):
        members = part_of == part
        assert abs(members.mean() - fraction) < 0.01
        found = labels[members].sum(axis=0)
        assert np.abs(found - fraction * labels.sum(axis=0)).max() <= 2


def test_the_same_seed_gives_the_same_parts() -> None:
    labels = labels_of(50, [0.5, 0.2])
    parts = [
        assign_groups(labels, np.arange(50), (0.5, 0.5), np.random.default_rng(seed))
        for seed in (3, 3, 4)
    ]
    assert parts[0].tolist() == parts[1].tolist() != parts[2].tolist()


def test_groups_are_whole_and_no_part_is_empty() -> None:
    labels = labels_of(30, [0.5, 0.1])
    group_of = np.repeat([0, 1, 2], [26, 2, 2])
    part_of = assign_groups(labels, group_of, (0.8, 0.1, 0.1), np.random.default_rng(0))
    assert sorted(part_of.tolist()) == [0, 1, 2]
