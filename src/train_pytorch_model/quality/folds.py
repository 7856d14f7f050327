"""Images in folds, of which each is predicted by a classifier that has learned from the others."""

import numpy as np

from train_pytorch_model.config.seeds import derive_seed

NUM_FOLDS = 5


def stratified_folds(
    categories: np.ndarray, groups: np.ndarray, seed: int, num_folds: int = NUM_FOLDS
) -> np.ndarray:
    """Return the fold (N,), int64, of each image, from 0 on.

    Images of the same number in `groups` (N,) are in one fold: an image is never predicted from its
    twin. Each fold has about the same share of each of the `categories` (N,); a group of several
    counts for the one of most of its images. With fewer groups than folds, some folds are empty.
    """
    _, group_of = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group_of)  # (G,)
    main_category = _main_categories(categories, group_of)  # (G,)
    random = np.random.default_rng(derive_seed(seed, "folds"))
    # The largest groups first: small ones fill what these leave uneven.
    order = np.lexsort([random.permutation(len(sizes)), -sizes])

    in_category = np.zeros((int(main_category.max()) + 1, num_folds), np.int64)
    in_all = np.zeros(num_folds, np.int64)
    fold_of_group = np.empty(len(sizes), np.int64)
    for group in order.tolist():
        of_category = in_category[main_category[group]]
        fold = np.lexsort([in_all, of_category])[0]  # the last key counts first
        of_category[fold] += sizes[group]
        in_all[fold] += sizes[group]
        fold_of_group[group] = fold
    return fold_of_group[group_of]


def _main_categories(categories: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    """Return (G,): the category of most images of each group; of equally many, the first."""
    pairs, counts = np.unique(np.stack([group_of, categories]), axis=1, return_counts=True)
    order = np.lexsort([pairs[1], -counts, pairs[0]])
    _, first_of_group = np.unique(pairs[0][order], return_index=True)
    main: np.ndarray = pairs[1][order][first_of_group]
    return main
