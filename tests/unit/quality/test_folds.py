import numpy as np

from train_pytorch_model.quality.folds import stratified_folds


def test_each_fold_has_its_share_of_every_category() -> None:
    categories = np.repeat([0, 1, 2], [50, 20, 10])
    folds = stratified_folds(categories, np.arange(80), seed=1)
    for category, expected in enumerate([10, 4, 2]):
        assert np.bincount(folds[categories == category]).tolist() == [expected] * 5


def test_a_group_is_in_one_fold() -> None:
    groups = np.random.default_rng(0).integers(0, 30, 200)
    folds = stratified_folds(np.arange(200) % 4, groups, seed=1)
    for group in range(30):
        assert len(np.unique(folds[groups == group])) == 1
    assert np.bincount(folds, minlength=5).min() >= 30


def test_a_category_of_one_image_is_in_one_fold() -> None:
    folds = stratified_folds(np.array([0] * 9 + [1]), np.arange(10), seed=1)
    assert np.bincount(folds).tolist() == [2] * 5


def test_a_group_larger_than_a_fold_leaves_the_others_balanced() -> None:
    groups = np.concatenate([np.zeros(60, int), np.arange(1, 41)])
    folds = stratified_folds(np.zeros(100, int), groups, seed=1)
    assert sorted(np.bincount(folds).tolist()) == [10, 10, 10, 10, 60]


def test_folds_depend_on_the_seed_alone() -> None:
    categories = np.arange(40) % 2
    first, again, other = (stratified_folds(categories, np.arange(40), seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
