import pytest

from train_pytorch_model.inputs.race_plan import (
    RacePlan,
    Speed,
    epochs_within,
    finishing_s,
    plan_race,
    race_s,
    with_time_to_train,
)

SPEEDS = (Speed("slow", 0.06), Speed("fast", 0.01), Speed("middle", 0.03))


def plan(seconds: float, images: int = 1000, categories: int = 10) -> RacePlan:
    return plan_race(SPEEDS, images, categories, seconds, 10, 1, {})


def longest_race_s(planned: RacePlan) -> float:
    return race_s(planned, 10, planned.candidates[-1])


def test_with_enough_time_all_race_on_all_images() -> None:
    planned = plan(3600)
    assert [speed.name for speed in planned.candidates] == ["fast", "middle", "slow"]
    assert (planned.num_raced, planned.num_solved) == (1000, 1000)


def test_with_less_time_all_race_on_a_sample() -> None:
    planned = plan(200)
    assert len(planned.candidates) == 3
    assert 100 <= planned.num_raced < 1000
    assert planned.num_solved == 1000
    assert longest_race_s(planned) <= 0.5 * 200 - 10


def test_without_time_to_solve_all_images_all_race_on_few() -> None:
    planned = plan(120)
    assert len(planned.candidates) == 3
    assert planned.num_raced == 100
    assert 100 <= planned.num_solved < 1000
    assert longest_race_s(planned) <= 0.5 * 120 - 10


def test_with_still_less_the_slowest_is_left_out() -> None:
    planned = plan(40)
    assert [speed.name for speed in planned.candidates] == ["fast", "middle"]
    assert longest_race_s(planned) <= 0.5 * 40 - 10


def test_without_time_for_two_the_fastest_is_solved_on_what_there_is_time_for() -> None:
    planned = plan(25)
    assert [speed.name for speed in planned.candidates] == ["fast"]
    assert planned.num_raced == planned.num_solved
    assert 20 <= planned.num_solved < 1000


def test_without_any_time_a_few_images_of_each_category_are_used() -> None:
    planned = plan(1)
    assert (planned.num_candidates, planned.num_solved) == (1, 20)


def test_few_images_all_race() -> None:
    planned = plan(60, images=60)
    assert (planned.num_candidates, planned.num_raced) == (3, 60)


@pytest.mark.parametrize(("left_s", "epochs"), [(1000, 5), (55, 2), (54, 1), (27, 0), (-5, 0)])
def test_as_many_epochs_are_trained_as_fit_into_the_time(left_s: float, epochs: int) -> None:
    # An epoch takes 0.03 s x (2.4 x 300 + 100) = 24.6 s, and 90 % of the time is used.
    assert epochs_within(left_s, 0.03, 300, 100, is_mixed=False, most=5) == epochs


def test_there_is_time_for_more_epochs_in_mixed_precision() -> None:
    assert epochs_within(54, 0.03, 300, 100, is_mixed=True, most=5) == 2
    assert epochs_within(54, 0.03, 300, 60, is_mixed=True, most=5) == 3


def test_publishing_takes_its_time() -> None:
    assert finishing_s(0.1, 40) == pytest.approx(20)


def test_more_time_is_left_if_a_fast_candidate_wins() -> None:
    planned = plan(120)
    fast, _, slow = planned.candidates
    rest = planned.num_solved - planned.num_raced
    difference = race_s(planned, 10, slow) - race_s(planned, 10, fast)
    assert difference == pytest.approx(rest * (slow.image_s - fast.image_s))


@pytest.mark.parametrize(
    ("with_all", "with_few", "num_solved"),
    [(5, 5, 500), (2, 3, 500), (1, 2, 100), (0, 3, 100), (0, 1, 500)],
)
def test_training_comes_before_the_features_of_all_images(
    with_all: int, with_few: int, num_solved: int
) -> None:
    planned = RacePlan(SPEEDS, 3, 100, 500, 0.0, 1, {})

    def epochs(each: RacePlan) -> int:
        return with_all if each.num_solved == 500 else with_few

    assert with_time_to_train(planned, epochs).num_solved == num_solved
