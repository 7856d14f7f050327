"""How far training has progressed, on the terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from train_pytorch_model.config.wording import parameter, worded
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
    """How far training has progressed, for the log."""
    progress, images = state.progress, state.images["training"]
    if state.is_over:
        return "after the last epoch; only the trained model directory is missing"
    if progress.images_done == 0:
        return f"at the beginning of epoch {progress.epoch}"
    return f"in epoch {progress.epoch}, after {progress.images_done:,} of {len(images):,} images"


def show_epoch(plan: Plan, state: State) -> None:
    """Log the results of the epoch that was completed last in one line."""
    record = state.progress.history[-1]
    has_top5 = len(plan.inputs.categories) > TOP_K  # otherwise it is always 100 %
    summary(
        f"Epoch {record['epoch']}/{plan.config.epochs}",
        f"training loss {record['Train loss']:.4f}",
        f"validation loss {record['Valid loss']:.4f}",
        f"top-1 {record['Top 1 accuracy']:.1%}",
        *(["best"] if state.best.epoch == record["epoch"] else []),
        *([f"top-5 {record['Top 5 accuracy']:.1%}"] if has_top5 else []),
        f"{record['Train images per second']:.1f} images/s",
    )


def rest_s(plan: Plan, epoch: int, step_s: float, waited_s: float) -> float:
    """Seconds for the epochs after `epoch`, counted from 1, whose steps took `step_s`, `waited_s`
    idle.

    The computing time of a step is proportional to the pixels of an image. Waiting does not grow
    with them: a large file takes as long to read at any training size.
    """
    pixels = [framing.num_pixels for framing in plan.framings]
    computed_s = sum(pixels[epoch:]) / pixels[epoch - 1] * (step_s - waited_s)
    return plan.steps_per_epoch * (computed_s + (len(pixels) - epoch) * waited_s)


class EpochView:
    """Displays the progress of an epoch of which `num_steps` steps are left."""

    def __init__(self, bar: Bar, plan: Plan, state: State, num_steps: int) -> None:
        self._bar, self._plan, self._state = bar, plan, state
        self._num_steps, self._steps = num_steps, 0
        self._start = self._first_step = time.perf_counter(), state.progress.waited_s

    def show(self, report: StepReport | None) -> None:
        """Count a step, and show a report that is due."""
        self._bar.advance()
        self._steps += 1
        progress = self._state.progress
        if self._steps == 1:
            self._first_step = time.perf_counter(), progress.waited_s
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

    def _pace_since(self, start: tuple[float, float], steps: int) -> tuple[float, float]:
        """Seconds that a step has taken since then, and the part of them spent waiting for images."""
        started_at, waited_s = start
        waited_s = self._state.progress.waited_s - waited_s
        return (time.perf_counter() - started_at) / steps, waited_s / steps

    def _eta(self) -> str:
        """The time left for the epoch, and for the run if all epochs are trained."""
        plan, progress = self._plan, self._state.progress
        step_s, waited_s = self._pace_since(self._start, self._steps)
        epoch_s = step_s * (self._num_steps - self._steps)
        following = plan.config.epochs - progress.epoch
        if following == 0:
            return f"ETA {duration(epoch_s)}"
        validation_s = (
            progress.times[-1].validation_s if progress.times else 0.0
        )  # unknown in epoch 1
        run_s = (
            epoch_s
            + rest_s(plan, progress.epoch, step_s, waited_s)
            + (following + 1) * validation_s
        )
        return f"ETA {duration(epoch_s)}, run {duration(run_s)}"

    def _warn_of_a_long_run(self) -> None:
        plan, progress = self._plan, self._state.progress
        is_first = progress.epoch == 1 and progress.steps_done == self._steps
        if plan.world.device.type != "cpu" or not is_first:
            return
        step_s, waited_s = self._pace_since(self._first_step, STEPS_TO_JUDGE - 1)
        run_s = step_s * plan.steps_per_epoch + rest_s(plan, 1, step_s, waited_s)
        if run_s >= LONG_RUN_S:
            epochs, images = plan.config.epochs, len(plan.inputs.training)
            logger.warning(
                f"At the speed of the first steps, {images * epochs:,} images ({epochs}"
                f" epochs) take about {duration(run_s)} on this CPU. A GPU takes a small part of"
                " that."
                f" Fewer {parameter('epochs')} or{worded(', in init-model,', '')} a smaller"
                f" {parameter('image_size')} or"
                f" {parameter('freeze_backbone')} help, too."
            )


@contextmanager
def epoch_view(plan: Plan, state: State, num_steps: int) -> Iterator[EpochView]:
    """The display of the open epoch, for a `with`; `num_steps` steps of it are left."""
    done, epochs = state.progress.steps_done, plan.config.epochs
    title = f"Epoch {state.progress.epoch}/{epochs}"
    with progress_bar(done + num_steps, title, done, plan.config.print_frequency) as bar:
        yield EpochView(bar, plan, state, num_steps)
