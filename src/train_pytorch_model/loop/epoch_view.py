"""Progress of an epoch, on the screen or in the log; and a warning if a run will take long."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from train_pytorch_model.data.loader import Loader
from train_pytorch_model.loop.passes import StepReport
from train_pytorch_model.loop.train_state import Position
from train_pytorch_model.machine.console import Bar, logger
from train_pytorch_model.measures.time_budget import duration

STEPS_TO_JUDGE = 10  # until the speed is known; the first, slower one does not count
LONG_RUN_S = 2 * 3600.0  # worth a warning on a CPU

AfterStep = Callable[[Tensor], None]
"""Called with the sum of the losses of a step; may raise to end the epoch."""


def show_every(print_frequency: int, steps_per_epoch: int) -> int:
    """Steps between updates of a progress bar: at least ten an epoch, and one with each line of a log."""
    most = min(print_frequency, max(1, steps_per_epoch // 10))
    return next(steps for steps in range(most, 0, -1) if print_frequency % steps == 0)


@dataclass(frozen=True)
class RunLength:
    """The amount of work of a run if all epochs are trained."""

    images: int
    """Images of an epoch."""
    pixels: Sequence[int]
    """Pixels of an image, by epoch: the computing time of a step is proportional to them."""
    steps_per_epoch: int
    is_on_cpu: bool

    @property
    def epochs(self) -> int:
        return len(self.pixels)

    def rest_s(self, epoch: int, step_s: float, waited_s: float) -> float:
        """Seconds for the epochs after `epoch`, counted from 1, whose steps took `step_s`, `waited_s` idle.

        Waiting does not grow with the pixels: a large file takes as long to read at any training size.
        """
        computed = sum(self.pixels[epoch:]) / self.pixels[epoch - 1] * (step_s - waited_s)
        return self.steps_per_epoch * (computed + (self.epochs - epoch) * waited_s)


class EpochView:
    """Displays the progress of an epoch, as a `Watcher`; `num_steps` steps of it are left."""

    def __init__(
        self,
        bar: Bar,
        loader: Loader,
        position: Position,
        num_steps: int,
        length: RunLength,
        after_step: AfterStep,
    ) -> None:
        self._bar, self._loader, self._position = bar, loader, position
        self._length, self._after_step = length, after_step
        self._num_steps, self._steps = num_steps, 0
        self._started_at = self._first_step_at = time.perf_counter()
        self._waited_at_start_s = self._waited_at_first_step_s = loader.waited_s
        self._waited_before_s = position.waited_s - loader.waited_s

    def after_step(self, loss_sum: Tensor) -> None:
        self._bar.advance()
        self._steps += 1
        self._position.waited_s = self._waited_before_s + self._loader.waited_s
        if self._steps == 1:
            self._first_step_at = time.perf_counter()
            self._waited_at_first_step_s = self._loader.waited_s
        elif self._steps == STEPS_TO_JUDGE:
            self._warn_of_a_long_run()
        self._after_step(loss_sum)

    def report(self, report: StepReport) -> None:
        data_share = self._position.waited_s / max(self._position.elapsed_s, 1e-9)
        self._bar.show(
            report.step,
            f"loss {report.metrics.loss:.4f}",
            f"top-1 {report.metrics.top1:6.1%}",
            self._eta(),
            f"{report.images_per_second:.1f} images/s",
            f"lr {report.lr:.2e}",
            f"data wait {data_share:.0%}",
        )

    def _eta(self) -> str:
        """The time left for the epoch, and for the run if all epochs are trained."""
        length, position = self._length, self._position
        step_s = (time.perf_counter() - self._started_at) / self._steps
        waited_s = (self._loader.waited_s - self._waited_at_start_s) / self._steps
        epoch_s = step_s * (self._num_steps - self._steps)
        following = length.epochs - position.epoch
        if following == 0:
            return f"ETA {duration(epoch_s)}"
        validation_s = position.times[-1].validation_s if position.times else 0.0  # unknown in epoch 1
        run_s = epoch_s + length.rest_s(position.epoch, step_s, waited_s) + (following + 1) * validation_s
        return f"ETA {duration(epoch_s)}, run {duration(run_s)}"

    def _warn_of_a_long_run(self) -> None:
        length, position = self._length, self._position
        is_first = position.epoch == 1 and position.steps_done == self._steps
        if not (length.is_on_cpu and is_first):
            return
        step_s = (time.perf_counter() - self._first_step_at) / (STEPS_TO_JUDGE - 1)
        waited_s = (self._loader.waited_s - self._waited_at_first_step_s) / (STEPS_TO_JUDGE - 1)
        run_s = step_s * length.steps_per_epoch + length.rest_s(1, step_s, waited_s)
        if run_s >= LONG_RUN_S:
            logger.warning(
                f"At the speed of the first steps, {length.images * length.epochs:,} images ({length.epochs}"
                f" epochs) take about {duration(run_s)} on this CPU. A GPU takes a small part of that."
                " Fewer --epochs or, in init-model, a smaller --image-size or --freeze-backbone help, too."
            )
