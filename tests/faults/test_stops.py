"""A run that is asked to stop saves a checkpoint, says how to resume, and resumes from there."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.file_injections import full_disk
from tests.faults.injections import (
    a_step_may_take,
    checkpoints_on_request_only,
    saving_takes,
    signal_at_step,
    signal_in_validation,
    signals_together_within,
    sleep_in_steps,
)
from tests.faults.trials import Bench, Injection, Result, checkpoints_of, result_of, run_folder_of

AT_ONCE = (
    "\nStopped by {} at once. The same command resumes from the last checkpoint, if there is any.\n"
)


def in_epoch_2(number: signal.Signals, ranks: int) -> Injection:
    """The last process is asked to stop before the first step of the second epoch."""
    return partial(signal_at_step, number=4 // ranks, signals=[number], rank=ranks - 1)


def in_validation(number: signal.Signals, ranks: int) -> Injection:
    return partial(signal_in_validation, number=number, rank=ranks - 1)


@pytest.mark.parametrize(
    ("number", "ranks", "asked", "where"),
    [
        pytest.param(signal.SIGTERM, 1, in_epoch_2, "after ", id="SIGTERM"),
        pytest.param(signal.SIGINT, 1, in_epoch_2, "after ", id="SIGINT"),
        pytest.param(signal.SIGHUP, 1, in_epoch_2, "after ", id="SIGHUP"),
        pytest.param(signal.SIGTERM, 2, in_epoch_2, "after ", id="one of two ranks"),
        pytest.param(signal.SIGTERM, 1, in_validation, "after 15 of 15", id="in validation"),
    ],
)
def test_a_signal_ends_a_run_with_a_checkpoint(
    bench: Bench,
    undisturbed: Callable[[int], Result],
    output: Path,
    number: signal.Signals,
    ranks: int,
    asked: Callable[[signal.Signals, int], Injection],
    where: str,
) -> None:
    no_others = partial(checkpoints_on_request_only)
    stopped = bench.train(output, injections=[no_others, asked(number, ranks)], ranks=ranks)
    assert stopped.statuses == [128 + number] * ranks
    assert stopped.stdout.count("Asked to stop: writing a checkpoint first.\n") == 1
    assert stopped.stderr == (
        f"\nStopped by {number.name}. The same command resumes from here; the checkpoint is in"
        f" {run_folder_of(output) / 'checkpoints'}.\n"
    )
    assert not output.exists()
    assert not (run_folder_of(output) / "lock").exists()
    assert len(checkpoints_of(output)) == 1
    ended = bench.train(output, ranks=ranks)
    assert set(ended.statuses) == {0}, ended
    assert f"Resumed     in epoch 2, {where}" in ended.stdout
    assert result_of(output) == undisturbed(ranks)


def test_no_process_exits_before_the_checkpoint_is_saved(bench: Bench, output: Path) -> None:
    """A launcher ends all processes as soon as one has ended."""
    asked = partial(signal_at_step, number=2, signals=[signal.SIGTERM], rank=1)
    job = bench.start(output, injections=[partial(saving_takes, seconds=2.0), asked], ranks=2)
    first, second = job.processes
    assert second.wait() == 128 + signal.SIGTERM
    saved = checkpoints_of(output)
    assert first.wait() == 128 + signal.SIGTERM
    assert saved == checkpoints_of(output) != []


def test_a_second_signal_ends_a_run_at_once(bench: Bench, output: Path) -> None:
    asked = partial(signal_at_step, number=0, signals=[signal.SIGINT, signal.SIGINT])
    at_once = partial(signals_together_within, seconds=-1.0)
    ended = bench.train(output, injections=[at_once, partial(sleep_in_steps, seconds=600.0), asked])
    assert ended.statuses == [128 + signal.SIGINT]
    assert ended.stderr == AT_ONCE.format("SIGINT")
    assert not checkpoints_of(output)


def test_a_step_that_never_ends_is_not_waited_for(bench: Bench, output: Path) -> None:
    asked = partial(signal_at_step, number=0, signals=[signal.SIGTERM])
    patience = partial(a_step_may_take, seconds=0.5)
    ended = bench.train(
        output, injections=[patience, partial(sleep_in_steps, seconds=600.0), asked]
    )
    assert ended.statuses == [128 + signal.SIGTERM]
    assert ended.stderr == AT_ONCE.format("SIGTERM")


def test_a_stop_whose_checkpoint_cannot_be_written_is_reported(bench: Bench, output: Path) -> None:
    injections: list[Injection] = [
        partial(full_disk, below=str(run_folder_of(output) / "checkpoints")),
        partial(signal_at_step, number=2, signals=[signal.SIGTERM]),
    ]
    stopped = bench.train(output, injections=injections)
    assert stopped.statuses == [128 + signal.SIGTERM]
    assert "No final checkpoint could be written to " in stopped.stderr
    assert (
        "Warning: A checkpoint cannot be written ([Errno 28] No space left on device: "
        in stopped.stdout
    )
