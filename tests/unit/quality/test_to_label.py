"""Which images to label next."""

import numpy as np

from train_pytorch_model.quality.to_label import MostUncertain

RANDOM = np.random.default_rng(5)


def test_the_smallest_margins_are_kept_over_batches_of_any_size() -> None:
    probabilities = RANDOM.dirichlet(np.ones(4), size=300)
    probabilities[17] = probabilities[203]  # equally uncertain: the first one counts
    features = RANDOM.normal(size=(300, 5)).astype(np.float32)
    two = np.sort(probabilities, axis=1)[:, -2:]
    expected = np.argsort(two[:, 1] - two[:, 0], kind="stable")
    for size in (1, 40, 299, 300, 400):
        uncertain = MostUncertain(size)
        for rows in np.split(np.arange(300), [1, 1, 64, 200]):
            uncertain.add(rows, probabilities[rows], features[rows])
        ranked = list(uncertain.ranked())
        assert ranked[0].index == expected[0]
        assert {each.index for each in ranked} == set(expected[:size].tolist())
        for each in ranked:
            assert probabilities[each.index, list(each.top)].tolist() == list(each.probabilities)
            assert each.probabilities[0] == probabilities[each.index].max()
            np.testing.assert_array_equal(each.features, features[each.index])


def test_images_of_every_kind_come_before_a_second_of_one_kind() -> None:
    kinds = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)  # four images of each of three kinds
    features = kinds * RANDOM.uniform(0.5, 50, size=(12, 1)).astype(np.float32)
    probabilities = np.stack([0.5 + np.arange(12) / 100, 0.5 - np.arange(12) / 100], axis=1)
    uncertain = MostUncertain(12)
    uncertain.add(np.arange(12), probabilities, features)
    order = [each.index for each in uncertain.ranked()]
    assert order[:3] == [0, 4, 8]  # the most uncertain of each kind
    assert sorted(order) == list(range(12))


def test_nothing_to_label_and_features_of_zeros_are_no_trouble() -> None:
    assert list(MostUncertain(3).ranked()) == []
    uncertain = MostUncertain(3)
    uncertain.add(np.arange(2), np.array([[0.6, 0.4], [0.5, 0.5]]), np.zeros((2, 4), np.float32))
    assert [each.index for each in uncertain.ranked()] == [1, 0]
