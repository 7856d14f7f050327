"""Where the time of a run went, and what limited its speed."""

from collections.abc import Sequence
from dataclasses import dataclass

LIMITING_FRACTION = 0.2  # of the training time spent waiting; below it, faster reading hardly helps


@dataclass(frozen=True)
class EpochTimes:
    """Durations of an epoch in the main process, in seconds, and its threads."""

    training_s: float  # from the first training batch to the last, including waiting for images
    waiting_s: float  # the part of it spent waiting for images to be read and decoded
    validation_s: float
    threads: int  # with how many PyTorch computed at its end


@dataclass(frozen=True)
class TimeBudget:
    """How a run spent its time, in seconds, over all its starts; the parts add up to the total."""

    computing_s: float  # training batches, excluding waiting
    waiting_s: float
    validation_s: float
    rest_s: float  # start-up, checkpoints and the report

    @property
    def total_s(self) -> float:
        """Return the duration of the run."""
        return self.computing_s + self.waiting_s + self.validation_s + self.rest_s

    @property
    def verdict(self) -> str:
        """Return what limited the speed, as a sentence."""
        waiting = self.waiting_s / max(self.computing_s + self.waiting_s, 1e-9)
        spent = f"{waiting:.0%} of its time was spent waiting for images."
        if waiting < LIMITING_FRACTION:
            return f"Training was compute-bound: {spent}"
        return (
            f"Training was input-bound: {spent} More CPU cores help; so do smaller image files,"
            " such as the verb transform writes."
        )


def budget_of(epochs: Sequence[EpochTimes], run_s: float) -> TimeBudget:
    """Return the budget of a run of these epochs that took `run_s` seconds in all."""
    training_s = sum(epoch.training_s for epoch in epochs)
    waiting_s = sum(epoch.waiting_s for epoch in epochs)
    validation_s = sum(epoch.validation_s for epoch in epochs)
    return TimeBudget(
        computing_s=max(training_s - waiting_s, 0.0),
        waiting_s=waiting_s,
        validation_s=validation_s,
        rest_s=max(run_s - training_s - validation_s, 0.0),
    )


def duration(seconds: float) -> str:
    """Format a duration as `42 s`, `3 min 05 s` or `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
