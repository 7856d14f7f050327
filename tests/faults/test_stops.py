"""A run that is asked to stop saves a checkpoint, says how to resume, and resumes from there."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.trials import Bench, Injection, Result, checkpoints_of, result_of, run_folder_of

AT_ONCE = (
    "\nStopped by {} at once. The same command resumes from the last checkpoint, if there is any.\n"
)


@pytest.mark.parametrize(
    ("number", "ranks", "injection", "where"),
    [
        pytest.param(signal.SIGTERM, 1, "signal_at_step", "in epoch 2, after ", id="SIGTERM"),
        pytest.param(signal.SIGINT, 1, "signal_at_step", "in epoch 2, after ", id="SIGINT"),
        pytest.param(signal.SIGHUP, 1, "signal_at_step", "in epoch 2, after ", id="SIGHUP"),
        pytest.param(
            signal.SIGTERM, 2, "signal_at_step", "in epoch 2, after ", id="one of two ranks"
        ),
        pytest.param(
            signal.SIGTERM,
            1,
            "signal_in_validation",
            "in epoch 2, after 15 of 15",
            id="in validation",
        ),
    ],
)
def test_a_signal_ends_a_run_with_a_checkpoint(
    bench: Bench,
    undisturbed: Callable[[int], Result],
    output: Path,
    number: signal.Signals,
    ranks: int,
    injection: str,
    where: str,
) -> None:
    options: dict[str, object] = {"rank": ranks - 1}
    if injection == "signal_at_step":
        options |= {"number": 4 // ranks, "signals": [number]}
    else:
        options |= {"number": number}
    every = {"stories__train__EVERY_S": 800.0, "loop__saving__EPOCHS_EVERY_S": 800.0}
    never = ("constants", every)  # except the checkpoint written on request
    stopped = bench.train(output, injections=[never, (injection, options)], ranks=ranks)
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
    assert f"Resumed     {where}" in ended.stdout
    assert result_of(output) == undisturbed(ranks)


def test_no_process_exits_before_the_checkpoint_is_saved(bench: Bench, output: Path) -> None:
    """A launcher ends all processes as soon as one has ended."""
    asked = ("signal_at_step", {"number": 2, "signals": [signal.SIGTERM], "rank": 1})
    job = bench.start(output, injections=[("saving_takes", {"seconds": 2.0}), asked], ranks=2)
    first, second = job.processes
    assert second.wait() == 128 + signal.SIGTERM
    saved = checkpoints_of(output)
    assert first.wait() == 128 + signal.SIGTERM
    assert saved == checkpoints_of(output) != []


def test_a_second_signal_ends_a_run_at_once(bench: Bench, output: Path) -> None:
    asked = ("signal_at_step", {"number": 0, "signals": [signal.SIGINT, signal.SIGINT]})
    at_once = ("constants", {"machine__stop_requests__TOGETHER_S": -1.0})
    ended = bench.train(output, injections=[at_once, ("sleep_in_steps", {"seconds": 600.0}), asked])
    assert ended.statuses == [128 + signal.SIGINT]
    assert ended.stderr == AT_ONCE.format("SIGINT")
    assert not checkpoints_of(output)


def test_a_step_that_never_ends_is_not_waited_for(bench: Bench, output: Path) -> None:
    asked = ("signal_at_step", {"number": 0, "signals": [signal.SIGTERM]})
    patience = ("constants", {"machine__stop_requests__GRACE_S": 0.5})
    ended = bench.train(
        output, injections=[patience, ("sleep_in_steps", {"seconds": 600.0}), asked]
    )
    assert ended.statuses == [128 + signal.SIGTERM]
    assert ended.stderr == AT_ONCE.format("SIGTERM")


def test_a_stop_whose_checkpoint_cannot_be_written_is_reported(bench: Bench, output: Path) -> None:
    injections: list[Injection] = [
        ("full_disk", {"below": str(run_folder_of(output) / "checkpoints")}),
        ("signal_at_step", {"number": 2, "signals": [signal.SIGTERM]}),
    ]
    stopped = bench.train(output, injections=injections)
    assert stopped.statuses == [128 + signal.SIGTERM]
    assert "No final checkpoint could be written to " in stopped.stderr
    assert (
        "Warning: A checkpoint cannot be written ([Errno 28] No space left on device: "
        in stopped.stdout
    )
