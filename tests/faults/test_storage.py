"""Full or vanishing storage costs checkpoints, never the training."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.file_injections import full_disk, limit_file_size, mount
from tests.faults.injections import (
    checkpoints_wait_for_step,
    files_are_read_back_twice,
    mlflow_is_left_out,
    remove_at_step,
    signal_at_step,
)
from tests.faults.trials import Bench, Result, checkpoints_of, result_of, run_folder_of

Undisturbed = Callable[[int], Result]


def test_training_continues_without_space_for_checkpoints(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    """A checkpoint takes 1.2 MB here, the model 0.4 MB."""
    ended = bench.train(output, injections=[partial(limit_file_size, limit=800_000)])
    assert ended.statuses == [0], ended
    assert "Warning: A checkpoint cannot be written ([Errno 27] File too large" in ended.stdout
    assert result_of(output) == undisturbed(1)
    assert not run_folder_of(output).exists()


def test_training_does_not_wait_for_a_slow_disk(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    """It would wait forever: the disk writes nothing until the third step of the second epoch."""
    job = bench.launch(
        bench.arguments(output),
        [partial(mlflow_is_left_out), partial(checkpoints_wait_for_step, number=6)],
    )
    ended = job.wait()
    assert ended.statuses == [0], ended
    assert result_of(output) == undisturbed(1)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_run_folder_that_vanishes_does_not_end_the_training(
    bench: Bench, undisturbed: Undisturbed, output: Path, is_replaced: bool
) -> None:
    run = run_folder_of(output)
    vanish = partial(remove_at_step, number=2, path=str(run), replaced_by_a_file=is_replaced)
    ended = bench.train(output, injections=[vanish])
    assert ended.statuses == [0], ended
    assert result_of(output) == undisturbed(1)
    if is_replaced:
        assert (
            "Warning: A checkpoint cannot be written ([Errno 20] Not a directory: " in ended.stdout
        )
        assert f"Warning: {run} cannot be written: " in ended.stdout
        assert run.is_file()
    else:
        assert not run.exists()


def test_a_run_resumes_from_a_folder_that_had_vanished(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    vanish = partial(
        remove_at_step, number=2, path=str(run_folder_of(output)), replaced_by_a_file=False
    )
    kill = partial(signal_at_step, number=6, signals=[9])
    assert bench.train(output, injections=[vanish, kill]).statuses == [-9]
    ended = bench.train(output)
    assert ended.statuses == [0], ended
    assert "Resumed     in epoch 2" in ended.stdout
    assert result_of(output) == undisturbed(1)


def test_a_model_that_could_not_be_written_is_written_by_repeating_the_command(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    full = partial(full_disk, below=f"{output}/", after=6)
    failed = bench.train(output, injections=[full])
    assert failed.statuses == [4], failed
    assert failed.stderr.startswith(
        f"TrainingError: The model is trained, but: --trained-model {output} cannot be finished,"
        " and nothing"
        " is left of it: [Errno 28] No space left on device: "
    )
    assert failed.stderr.endswith(" The same command writes it without training again.\n")
    assert f"The files of the failed run are in {run_folder_of(output)}\n" in failed.stdout
    assert not output.exists()
    ended = bench.train(output)
    assert ended.statuses == [0], ended
    assert (
        "Resumed     after the last epoch; only the trained model directory is missing"
        in ended.stdout
    )
    assert "Epoch" not in ended.stdout
    assert result_of(output) == undisturbed(1)


def test_a_model_is_written_to_a_mounted_storage(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    """The storage has no renames and shows a new file only at the third read; the run folder is
    local.
    """
    mounted = partial(mount, below=f"{output}/", too_early=2)
    ended = bench.train(output, injections=[mounted])
    assert ended.statuses == [0], ended
    assert result_of(output) == undisturbed(1)
    assert not run_folder_of(output).exists()


def test_losing_the_model_on_mounted_storage_is_an_error(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    mounted = partial(mount, below=f"{output}/", too_early=1_000_000)
    impatient = partial(files_are_read_back_twice)
    failed = bench.train(output, injections=[mounted, impatient])
    assert failed.statuses == [4], failed
    assert "the file reads back differently from what was written" in failed.stderr
    assert not (output / "_meta.yaml").exists()
    ended = bench.train(output)
    assert ended.statuses == [0], ended
    assert "Epoch" not in ended.stdout
    assert result_of(output) == undisturbed(1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 300 KB, too small for a model."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_when_nothing_fits_on_the_disk_the_checkpoint_is_saved_elsewhere(
    bench: Bench, undisturbed: Undisturbed, small_disk: Path
) -> None:
    output = small_disk / "trained"
    failed = bench.train(output)
    assert failed.statuses == [4], failed
    found = re.search(
        r"Its checkpoint is in (\S+)\. Move its two files to (\S+)\. The same", failed.stderr
    )
    assert found, failed.stderr
    elsewhere, checkpoints = map(Path, found.groups())
    assert checkpoints == run_folder_of(output) / "checkpoints"
    subprocess.run(["mount", "-o", "remount,size=100m", small_disk], check=True)
    assert not checkpoints_of(output)
    for path in elsewhere.iterdir():
        shutil.move(path, checkpoints / path.name)
    elsewhere.rmdir()
    ended = bench.train(output)
    assert ended.statuses == [0], ended
    assert "Epoch" not in ended.stdout
    assert result_of(output) == undisturbed(1)
