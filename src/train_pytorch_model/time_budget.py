"""Where the time of a run went, and what limited its speed."""

from collections.abc import Sequence
from dataclasses import dataclass

LIMITING_SHARE = 0.2  # of the training time spent waiting; below, faster reading would hardly show


@dataclass(frozen=True)
class EpochTimes:
    """Of one epoch, in seconds of the main process."""

    training_s: float
    """The training batches, from the first to the last, with the waiting for images."""
    waiting_s: float
    """Of that, waiting for images to be read and decoded."""
    validation_s: float


@dataclass(frozen=True)
class TimeBudget:
    """The seconds of a run, over all its starts; they add up to its time."""

    computing_s: float
    """The training batches, without the waiting."""
    waiting_s: float
    """Waiting for training images."""
    validation_s: float
    rest_s: float
    """Starting, checkpoints, the report."""

    @property
    def total_s(self) -> float:
        return self.computing_s + self.waiting_s + self.validation_s + self.rest_s

    @property
    def waiting_share(self) -> float:
        """Of the time of the training batches, from 0 to 1."""
        return self.waiting_s / max(self.computing_s + self.waiting_s, 1e-9)

    @property
    def verdict(self) -> str:
        """What limited the speed, as a sentence."""
        share = f"{self.waiting_share:.0%}"
        if self.waiting_share < LIMITING_SHARE:
            return f"Computing limited the speed: {share} of the training time was waiting for images."
        return (
            f"Reading images limited the speed: {share} of the training time was waiting for them. More"
            " processor cores help; so do smaller files, as the verb transform writes them."
        )


def budget_of(epochs: Sequence[EpochTimes], run_s: float) -> TimeBudget:
    """The budget of a run of these epochs that took `run_s` seconds in all."""
    training_s, waiting_s, validation_s = (
        sum(getattr(epoch, name) for epoch in epochs) for name in ("training_s", "waiting_s", "validation_s")
    )
    return TimeBudget(
        computing_s=max(training_s - waiting_s, 0.0),
        waiting_s=waiting_s,
        validation_s=validation_s,
        rest_s=max(run_s - training_s - validation_s, 0.0),
    )


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
