"""How far training has progressed, on the terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from train_pytorch_model.config.wording import parameter, with_init_model
from train_pytorch_model.evaluation.metrics import TOP_K
from train_pytorch_model.evaluation.time_budget import duration
from train_pytorch_model.machine.console import Bar, logger, paragraph, progress_bar, summary
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.plan_text import describe, warnings_of
from train_pytorch_model.training.state import State, StepReport

STEPS_TO_JUDGE = 10  # until the speed is known; the first, slower one does not count
LONG_RUN_S = 2 * 3600.0  # worth a warning on a CPU


def show_plan(engine: Engine) -> None:
    """Log the plan and all warnings before training starts."""
    for title, text in describe(engine.plan, engine.lr_factors).items():
        paragraph(text, title)
    for warning in warnings_of(engine.plan):
        logger.warning(warning)


def progress_of(state: State) -> str:
    """Return how far training has progressed, for the log."""
    progress = state.progress
    num_images = len(state.images["training"])
    if state.is_over:
        return "after the last epoch; only the trained model directory is missing"
    if progress.images_done == 0:
        return f"at the beginning of epoch {progress.epoch}"
    # Before the validation, images that turned out to be unreadable are no longer among them.
    done = min(progress.images_done, num_images)
    return f"in epoch {progress.epoch}, after {done:,} of {num_images:,} images"


def show_epoch(plan: Plan, state: State) -> None:
    """Log the results of the epoch that was completed last in one line."""
    record = state.progress.history[-1]
    facts = [
        f"Epoch {record['epoch']}/{plan.config.epochs}",
        f"training loss {record['Train loss']:.4f}",
        f"validation loss {record['Valid loss']:.4f}",
        f"top-1 {record['Top 1 accuracy']:.1%}",
    ]
    if "Mean average precision" in record:
        facts.append(f"mAP {record['Mean average precision']:.1%}")
    if state.best.epoch == record["epoch"]:
        facts.append("best")
    if len(plan.inputs.categories) > TOP_K:  # otherwise it is always 100 %
        facts.append(f"top-5 {record['Top 5 accuracy']:.1%}")
    facts.append(f"{record['Train images per second']:.1f} images/s")
    summary(*facts)


@dataclass(frozen=True)
class Pace:
    """The seconds that a step takes."""

    step_s: float
    waited_s: float  # the part of them spent waiting for images


def later_epochs_s(plan: Plan, epoch: int, pace: Pace) -> float:
    """Return the seconds for the epochs after `epoch`, counted from 1, whose steps had this pace.

    The computing time of a step is proportional to the pixels of an image. Waiting does not grow
    with them: a large file takes as long to read at any training size.
    """
    pixels = [framing.num_pixels for framing in plan.framings]
    computed_s = sum(pixels[epoch:]) / pixels[epoch - 1] * (pace.step_s - pace.waited_s)
    return plan.steps_per_epoch * (computed_s + (len(pixels) - epoch) * pace.waited_s)


class EpochView:
    """Displays the progress of an epoch of which `num_steps` steps are left."""

    def __init__(self, bar: Bar, plan: Plan, state: State, num_steps: int) -> None:
        self._bar = bar
        self._plan = plan
        self._state = state
        self._num_steps = num_steps
        self._steps = 0
        self._start = self._now()
        self._after_first_step = self._start

    def show(self, report: StepReport | None) -> None:
        """Count a step, and show a report that is due."""
        self._bar.advance()
        self._steps += 1
        progress = self._state.progress
        if self._steps == 1:
            self._after_first_step = self._now()
        elif self._steps == STEPS_TO_JUDGE:
            self._warn_of_a_long_run()
        if report:
            self._bar.show(
                report.step,
                f"loss {report.metrics.loss:.4f}",
                f"top-1 {report.metrics.top1:6.1%}",
                self._eta(),
                f"{report.images_per_second:.1f} images/s",
                f"lr {report.lr:.2e}",
                f"data wait {progress.waited_s / max(progress.elapsed_s, 1e-9):.0%}",
            )

    def _now(self) -> tuple[float, float]:
        """Return this instant, and the seconds waited for images in the epoch until then."""
        return time.perf_counter(), self._state.progress.waited_s

    def _pace_since(self, start: tuple[float, float], steps: int) -> Pace:
        """Return the mean pace of the `steps` since then."""
        started_at, waited_before_s = start
        now, waited_s = self._now()
        return Pace((now - started_at) / steps, (waited_s - waited_before_s) / steps)

    def _eta(self) -> str:
        """Return the time left for the epoch, and for the run if all epochs are trained."""
        plan = self._plan
        progress = self._state.progress
        pace = self._pace_since(self._start, self._steps)
        epoch_s = pace.step_s * (self._num_steps - self._steps)
        num_later = plan.config.epochs - progress.epoch
        if num_later == 0:
            return f"ETA {duration(epoch_s)}"
        # Unknown in the first epoch.
        validation_s = progress.times[-1].validation_s if progress.times else 0.0
        later_s = later_epochs_s(plan, progress.epoch, pace)
        run_s = epoch_s + later_s + (num_later + 1) * validation_s
        return f"ETA {duration(epoch_s)}, run {duration(run_s)}"

    def _warn_of_a_long_run(self) -> None:
        """Warn if a CPU takes hours for the run, judged in its very first steps."""
        plan = self._plan
        progress = self._state.progress
        is_first = progress.epoch == 1 and progress.steps_done == self._steps
        if plan.world.device.type != "cpu" or not is_first:
            return
        pace = self._pace_since(self._after_first_step, STEPS_TO_JUDGE - 1)
        run_s = pace.step_s * plan.steps_per_epoch + later_epochs_s(plan, 1, pace)
        if run_s >= LONG_RUN_S:
            epochs = plan.config.epochs
            num_images = len(plan.inputs.training) * epochs
            logger.warning(
                f"At the speed of the first steps, {num_images:,} images ({epochs} epochs) take"
                f" about {duration(run_s)} on this CPU. A GPU takes a small part of that. Fewer"
                f" {parameter('epochs')} or{with_init_model(', in init-model,', '')} a smaller"
                f" {parameter('image_size')} or {parameter('freeze_backbone')} help, too."
            )


@contextmanager
def epoch_view(plan: Plan, state: State, num_steps: int) -> Iterator[EpochView]:
    """Return the display of the open epoch, for a `with`; `num_steps` steps of it are left."""
    done = state.progress.steps_done
    title = f"Epoch {state.progress.epoch}/{plan.config.epochs}"
    with progress_bar(done + num_steps, title, done, plan.config.print_frequency) as bar:
        yield EpochView(bar, plan, state, num_steps)
