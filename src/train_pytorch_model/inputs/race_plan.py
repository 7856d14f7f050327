"""How a race spends its time: decided once, by what an image takes each network.

Half of the time is for the race, the other half for fine-tuning its winner.
"""

from collections.abc import Callable, Sequence

import msgspec

SHARE = 0.5  # of the time
# Images: as few tell networks apart that differ much. A slow one is left out only if there is no
# time for so many: that may cost more than a choice among similar ones.
MIN_RACED = 100
PER_CATEGORY = 5
LEAST_PER_CATEGORY = 2
# Seconds for an image, a component and a category in all folds, measured on one core at 3 GHz.
FOLDS_S = 0.9e-6
MAX_COMPONENTS = 512
# A step computes forwards and backwards, but for the first third of the layers, which stay as they
# are: 2.3 times a prediction. With mixed precision it takes less: predictions are in float32.
TRAINING_FACTOR = 2.4
MIXED_TRAINING_FACTOR = 1.5
# So many of all images teach more than a classifier of the features of all images.
ENOUGH_EPOCHS = 2
USED = 0.9  # of the time left, by fine-tuning: machines do not always go at one speed
FINISHING_S = 10.0  # validation, report and MLflow, besides predictions
EXPLAINED = 60  # as many predictions as the pictures of the report take


class Speed(msgspec.Struct, frozen=True):
    """What a candidate takes."""

    name: str
    image_s: float  # seconds to read an image and compute its features


class RacePlan(msgspec.Struct, frozen=True):
    """Which candidates race, on how many images, and how long the winner may be fine-tuned."""

    speeds: tuple[Speed, ...]  # of all that could be timed, the fastest first
    num_candidates: int  # of the fastest, that race
    num_raced: int  # images
    num_solved: int  # images of which the winner's features are computed
    elapsed_s: float  # until it was decided
    threads: int
    left_out: dict[str, str]  # candidates that could not be timed → why

    @property
    def candidates(self) -> tuple[Speed, ...]:
        return self.speeds[: self.num_candidates]


def plan_race(
    speeds: Sequence[Speed],
    num_images: int,
    num_categories: int,
    seconds: float,
    elapsed_s: float,
    threads: int,
    left_out: dict[str, str],
) -> RacePlan:
    """Return the plan for a number of images and seconds, of which some have elapsed.

    All of the candidates race on as many images as there is time for, all of them if possible; the
    winner learns from all, or else from as many as there is time for. The slowest is left out if
    they would be too few.
    """
    left_s = SHARE * seconds - elapsed_s
    fastest_first = tuple(sorted(speeds, key=lambda speed: speed.image_s))
    fewest = min(num_images, max(MIN_RACED, PER_CATEGORY * num_categories))
    for number in range(len(speeds), 1, -1):
        raced = _num_raced(fastest_first[:number], num_images, num_categories, left_s)
        if raced >= fewest:
            return RacePlan(fastest_first, number, raced, num_images, elapsed_s, threads, left_out)
        solved = _num_solved(fastest_first[:number], num_images, num_categories, left_s, fewest)
        if solved >= fewest:
            return RacePlan(fastest_first, number, fewest, solved, elapsed_s, threads, left_out)
    # Without a race: the images of which there is time to learn.
    image_s = fastest_first[0].image_s + folds_s(num_categories)
    solved = _at_most(num_images, left_s / image_s)
    solved = max(solved, min(num_images, LEAST_PER_CATEGORY * num_categories))
    return RacePlan(fastest_first, 1, solved, solved, elapsed_s, threads, left_out)


def _num_raced(racing: Sequence[Speed], num_images: int, num_categories: int, left_s: float) -> int:
    """Return on how many images there is time to race, and then to solve the slowest on all."""
    *others, slowest = (speed.image_s + folds_s(num_categories) for speed in racing)
    return _at_most(num_images, (left_s - num_images * slowest) / sum(others))


def _num_solved(
    racing: Sequence[Speed], num_images: int, num_categories: int, left_s: float, raced: int
) -> int:
    """Return of how many images the slowest can be solved, after a race on so many."""
    *others, slowest = (speed.image_s + folds_s(num_categories) for speed in racing)
    return _at_most(num_images, (left_s - raced * sum(others)) / slowest)


def _at_most(num_images: int, count: float) -> int:
    return max(0, int(min(num_images, count)))


def folds_s(num_categories: int) -> float:
    """Return what an image takes in all folds."""
    return FOLDS_S * MAX_COMPONENTS * num_categories


def race_s(plan: RacePlan, num_categories: int, winner: Speed) -> float:
    """Return how long a race takes by its plan, if this candidate wins."""
    solved_s = folds_s(num_categories)
    raced_s = sum(speed.image_s + solved_s for speed in plan.candidates) * plan.num_raced
    rest = plan.num_solved - plan.num_raced
    return raced_s + rest * (winner.image_s + solved_s)


def with_time_to_train(plan: RacePlan, epochs: Callable[[RacePlan], int]) -> RacePlan:
    """Return a plan by which there is time for enough `epochs`, if possible.

    The winner's features are then computed of the images of the race only.
    """
    without_others = msgspec.structs.replace(plan, num_solved=plan.num_raced)
    if epochs(plan) < ENOUGH_EPOCHS <= epochs(without_others):
        return without_others
    return plan


def finishing_s(image_s: float, num_held_out: int) -> float:
    """Return how long it takes to publish and test a model."""
    return FINISHING_S + image_s * (num_held_out + EXPLAINED)


def epochs_within(
    left_s: float,
    image_s: float,
    num_training: int,
    num_validation: int,
    is_mixed: bool,
    most: int,
) -> int:
    """Return for how many epochs, up to `most`, there is time.

    `image_s` is for a prediction; `is_mixed` says whether steps are in mixed precision.
    """
    factor = MIXED_TRAINING_FACTOR if is_mixed else TRAINING_FACTOR
    epoch_s = image_s * (factor * num_training + num_validation)
    return max(0, min(most, int(USED * left_s / epoch_s)))
