"""What the numbers of images stand for: categories, and sets of them."""

import numpy as np

from train_pytorch_model.formats.label_kinds import ONE_PER_IMAGE, LabelKind, SetsPerImage

SETS = SetsPerImage(np.array([[True, False, False], [True, False, True], [False] * 3]))
KNOWN = np.array([True, False, False])


def known_of(labels: LabelKind, *numbers: int) -> list[bool]:
    return list(labels.are_known(np.array(numbers, dtype=np.int32), KNOWN).tolist())


def test_a_label_is_known_if_all_its_categories_are() -> None:
    assert known_of(ONE_PER_IMAGE, 0, 1, 2) == [True, False, False]
    assert known_of(SETS, 0, 1, 0) == [True, False, True]


def test_an_empty_list_is_a_label_and_a_missing_one_is_not() -> None:
    assert known_of(SETS, 2, -1) == [True, False]
    assert known_of(ONE_PER_IMAGE, -1, 0) == [False, True]


def test_without_any_category_nothing_is_known() -> None:
    nothing = np.empty(0, dtype=bool)
    assert not ONE_PER_IMAGE.are_known(np.full(2, -1, dtype=np.int32), nothing).any()


def test_a_category_without_an_image_cannot_be_learned_from_lists() -> None:
    counts = np.array([4, 0, 2])
    assert SETS.unlearnable(counts).tolist() == [1]
    assert ONE_PER_IMAGE.unlearnable(counts).tolist() == []


def test_a_category_each_is_a_list_of_one() -> None:
    numbers = np.array([2, 0], dtype=np.int32)
    as_sets = ONE_PER_IMAGE.as_sets(3)
    assert as_sets.marks(numbers, 3).tolist() == ONE_PER_IMAGE.marks(numbers, 3).tolist()
    assert SETS.as_sets(3) is SETS
