"""The learning rate of each step."""

from dataclasses import dataclass

POWER = 2  # of the learning rate's decay


@dataclass(frozen=True)
class PolynomialSchedule:
    """Linear warmup and polynomial decay: a pure function of the step, with no state to save.

    With W = `warmup_steps` and T = `total_steps`, step s (counted from 0) has the learning rate
    `peak_lr * (s + 1) / W` for s < W, then `peak_lr * (1 - (s - W) / (T - W)) ** 2`:
    the first step after the warmup has the peak, the step after the last one would have 0.
    """

    peak_lr: float
    warmup_steps: int
    total_steps: int

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.peak_lr * (step + 1) / self.warmup_steps
        decay_steps = self.total_steps - self.warmup_steps
        return self.peak_lr * (1 - (step - self.warmup_steps) / decay_steps) ** POWER
