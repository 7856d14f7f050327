"""Which of two models is right more often on the same images.

Only the images tell on which one of them is right and the other wrong: McNemar's test (1947), with
the exact binomial distribution, which holds for few images, too.
"""

from dataclasses import dataclass

import numpy as np

TELLING = 0.05  # a lower p-value tells which model is better
LEAST_SHOWN = 0.001


@dataclass(frozen=True)
class PairedTest:
    """What two models answered to the same images."""

    images: int
    first_correct: int
    second_correct: int
    only_first: int  # images on which the first model alone is right
    only_second: int
    p_value: float
    """How probable it is that models that are equally good differ at least as much by chance."""

    @property
    def gain(self) -> float:
        """Return the accuracy of the second model minus that of the first, from -1 to 1."""
        return (self.second_correct - self.first_correct) / self.images

    @property
    def is_telling(self) -> bool:
        """Return whether the images tell which model is better."""
        return self.p_value < TELLING

    def about_chance(self) -> str:
        """Return how often chance alone makes such a difference, as a sentence without its dot."""
        often = f"in {self.p_value * 100:.2g} of 100 such comparisons"
        if self.p_value < LEAST_SHOWN:
            often = "in less than one of 1,000 such comparisons"
        return f"Two equally good models would differ at least as much {often}"


def compare_hits(first: np.ndarray, second: np.ndarray) -> PairedTest:
    """Compare which images two models recognize, both (N,), bool, for at least one image."""
    only_first = int(np.count_nonzero(first & ~second))
    only_second = int(np.count_nonzero(second & ~first))
    return PairedTest(
        images=len(first),
        first_correct=int(np.count_nonzero(first)),
        second_correct=int(np.count_nonzero(second)),
        only_first=only_first,
        only_second=only_second,
        p_value=exact_p_value(only_first, only_second),
    )


def exact_p_value(only_first: int, only_second: int) -> float:
    """Return the two-sided probability of counts that differ at least as much, from 0 to 1.

    Each image that only one of two models recognizes is as likely to be either one's.
    """
    from scipy.special import bdtr  # here, because it takes a tenth of a second

    total = only_first + only_second
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), total, 0.5)))
