"""Which runs resume from a checkpoint or are refused, and how a run recovers from failed steps."""

import json
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.injections import (
    broken_weights_at_step,
    not_finite_at_step,
    out_of_memory,
    signal_at_step,
)
from tests.faults.trials import (
    Bench,
    Ended,
    Result,
    checkpoints_of,
    result_of,
    run_folder_of,
    wait_until,
)

Undisturbed = Callable[[int], Result]


@pytest.fixture(scope="module")
def interrupted(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path, int], None]:
    """Place the run folder of a training by `ranks` processes, stopped in epoch 2, beside an
    output.
    """
    folders: dict[int, Path] = {}

    def place(output: Path, ranks: int = 1) -> None:
        if ranks not in folders:
            original = tmp_path_factory.mktemp("interrupted") / "trained"
            stop = partial(signal_at_step, number=4 // ranks, signals=[signal.SIGTERM])
            assert (
                bench.train(original, injections=[stop], ranks=ranks).status == 128 + signal.SIGTERM
            )
            folders[ranks] = run_folder_of(original)
        shutil.copytree(folders[ranks], run_folder_of(output))

    return place


Interrupted = Callable[..., None]


def test_a_second_job_with_the_same_output_is_refused(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    pause = partial(signal_at_step, number=2, signals=[signal.SIGSTOP])
    job = bench.start(output, injections=[pause])
    (first,) = job.processes
    wait_until(lambda: len(checkpoints_of(output)) == 2, "two checkpoints")
    for option in ((), ("--fresh",)):
        refused = bench.train(output, *option)
        assert refused.statuses == [2]
        assert refused.stderr.startswith(
            "OutputDirectoryError: --trained-model: another run is writing here: process"
            f" {first.pid} on "
        )
    assert (
        bench.train(output, ranks=2).statuses[0] == 2
    )  # as under torchrun, which hides the status
    assert not (run_folder_of(output) / "status.json").exists()
    first.send(signal.SIGCONT)
    assert job.wait().statuses == [0]
    assert result_of(output) == undisturbed(1)


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (
            ("--epochs", "3", "--random-seed", "7"),
            "\n  --epochs was 2 and is 3\n  --random-seed was 1 and is 7\n",
        ),
        (("--training-dataset", "validation"), "\n  --training-dataset has other content\n"),
        (("--untrained-model", "other"), "\n  --untrained-model has other content\n"),
    ],
)
def test_a_run_with_other_options_or_inputs_is_refused_with_the_differences(
    bench: Bench, interrupted: Interrupted, output: Path, options: tuple[str, ...], difference: str
) -> None:
    interrupted(output)
    if options[1] == "other":
        shutil.copytree(bench.untrained, output.parent / "other")
        spec = output.parent / "other" / "model_spec.yaml"
        spec.write_text(spec.read_text() + "# another\n")
        options = (options[0], str(output.parent / "other"))
    elif options[1] == "validation":
        options = (options[0], str(bench.folders / "validation"))
    before = sorted(run_folder_of(output).rglob("*"))
    refused = bench.train(output, *options)
    assert refused.statuses == [2]
    text = f"differs from this one:{difference}Repeat its command on the same inputs to resume it"
    assert text in refused.stderr
    assert sorted(run_folder_of(output).rglob("*")) == before


def test_a_fresh_run_may_have_other_parameters(
    bench: Bench, interrupted: Interrupted, output: Path
) -> None:
    interrupted(output)
    ended = bench.train(output, "--fresh", "--random-seed", "7")
    assert ended.statuses == [0], ended
    assert "Resumed" not in ended.stdout
    assert "Epoch 1/2: " in ended.stdout


def test_a_run_resumes_with_another_number_of_processes_and_warns(
    bench: Bench, interrupted: Interrupted, output: Path
) -> None:
    interrupted(output, ranks=2)
    ended = bench.train(output)
    assert ended.statuses == [0], ended
    assert (
        "Warning: The run was started with processes 2 and resumes with 1: its result will not"
        " equal" in ended.stdout
    )
    assert "Resumed     in epoch 2, after 8 of 15 images\n" in ended.stdout
    assert [json.loads(record)["epoch"] for record in result_of(output).metrics] == [1, 2]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_checkpoint_is_skipped_for_the_previous_one(
    bench: Bench, undisturbed: Undisturbed, interrupted: Interrupted, output: Path
) -> None:
    interrupted(output)
    newest = checkpoints_of(output)[-1]
    flip(newest.with_suffix(".safetensors"))
    ended = bench.train(output)
    assert ended.statuses == [0], ended
    assert (
        f"Warning: Skipping a damaged checkpoint: {newest.name}: the sha256 of"
        f" {newest.stem}.safetensors does not match.\n" in ended.stdout
    )
    assert result_of(output) == undisturbed(1)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_does_not_start_over_when_all_checkpoints_are_damaged(
    bench: Bench, interrupted: Interrupted, output: Path, ranks: int
) -> None:
    interrupted(output, ranks)
    for manifest in checkpoints_of(output):
        flip(manifest)
    failed = bench.train(output, ranks=ranks)
    assert failed.statuses == [4] * ranks
    assert failed.stderr.startswith("CheckpointError: None of the checkpoints in ")
    assert "Restore them from a backup, or start over with --fresh.\n" in failed.stderr


BATCHES_OF_5 = ("--batch-size", "5")


@pytest.mark.parametrize(
    ("broken_at_step", "what"),
    [(not_finite_at_step, "The training loss"), (broken_weights_at_step, "A weight")],
)
def test_a_value_that_is_not_finite_on_one_rank_rolls_all_ranks_back(
    bench: Bench, output: Path, broken_at_step: Callable[[list[int], int], None], what: str
) -> None:
    ended = bench.train(output, injections=[partial(broken_at_step, [3], 1)], ranks=2)
    assert ended.statuses == [0, 0], ended
    assert (
        f"Warning: {what} is no longer a finite number at step 2 of epoch 2. Back to step 1"
        in ended.stdout
    )
    assert ended.stdout.count("the learning rate halved from here on (1 of 3 times).") == 1


def test_training_fails_at_the_fourth_loss_that_is_not_finite(bench: Bench, output: Path) -> None:
    nan = partial(not_finite_at_step, numbers=[1, 2, 3, 4], rank=1)
    failed: Ended = bench.train(output, injections=[nan], ranks=2)
    assert failed.statuses == [4, 4]
    assert failed.stdout.count("the learning rate halved from here on (") == 3
    assert failed.stderr.startswith(
        "TrainingError: The training loss is no longer a finite number at step 2"
    )
    assert (
        "after halving the learning rate 3 times. Lower --learning-rate, now 0.01" in failed.stderr
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_after_running_out_of_memory_the_next_start_halves_the_micro_batch(
    bench: Bench, output: Path, ranks: int
) -> None:
    injection = partial(out_of_memory, number=4 // ranks, above=3, rank=ranks - 1)
    failed = bench.train(output, *BATCHES_OF_5, injections=[injection], ranks=ranks)
    assert failed.statuses == [4] * ranks
    assert (
        "ModuleOutOfMemoryError: Memory has been exhausted, unable to complete running of module."
        " Details:" in (failed.stderr)
    )
    assert (
        "5 images at once do not fit (CUDA out of memory. Tried to allocate 2.00 GiB). The same"
        " command" in (failed.stderr)
    )
    still = partial(out_of_memory, number=0, above=3)
    ended = bench.train(output, *BATCHES_OF_5, injections=[still], ranks=ranks)
    assert set(ended.statuses) == {0}, ended
    assert "2 images at once: a step of 5 accumulates the gradients of " in ended.stdout
    assert "The run was started with images at once 5 and resumes with 2" in ended.stdout
    assert "Resumed     " in ended.stdout
