"""A run killed at any moment and started again gives the result of an undisturbed run."""

import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.faults.file_injections import kill_at_file_event
from tests.faults.injections import signal_at_step
from tests.faults.trials import Bench, Result, result_of, run_folder_of

Undisturbed = Callable[[int], Result]


@pytest.mark.parametrize(
    ("ranks", "step", "where"),
    [
        (1, 5, "in epoch 2, after 4 of 15"),
        (2, 3, "in epoch 2, after 8 of 15"),
        (3, 2, "at the beginning of"),
    ],
)
def test_a_run_killed_between_two_steps_resumes_to_the_same_result(
    bench: Bench, undisturbed: Undisturbed, output: Path, ranks: int, step: int, where: str
) -> None:
    """Three ranks, unlike two, also show that sums over processes are added in the same order."""
    kill = partial(signal_at_step, number=step, signals=[signal.SIGKILL], rank=ranks - 1)
    killed = bench.train(output, injections=[kill], ranks=ranks)
    assert killed.statuses == [4] * (ranks - 1) + [-signal.SIGKILL]
    if ranks > 1:
        assert killed.stderr.count("LostRankError: ") == 1
        assert f"have lost each other: rank {ranks - 1} (process " in killed.stderr
        assert ") has ended. The same command resumes from the last checkpoint." in killed.stderr
        assert "Traceback" not in killed.stderr
    assert not output.exists()
    ended = bench.train(output, ranks=ranks)
    assert f"Resumed     {where}" in ended.stdout
    assert_undisturbed(ended.statuses, output, undisturbed(ranks))
    assert ended.stdout.count("Warning") == 1  # about too few images


CHECKPOINTS, RUN = "trained.run/checkpoints/", "trained.run/"


@pytest.mark.parametrize(
    ("event", "below", "number", "if_there"),
    [
        pytest.param("open", RUN + "config.json", 1, "", id="before any file exists"),
        pytest.param("open", CHECKPOINTS, 1, "", id="before the first checkpoint"),
        pytest.param(
            "os.rename", CHECKPOINTS, 5, "", id="before the third checkpoint has its name"
        ),
        pytest.param("open", CHECKPOINTS, 8, "", id="before the manifest of a checkpoint"),
        pytest.param("os.remove", CHECKPOINTS, 1, "", id="before an old checkpoint is removed"),
        pytest.param("open", "trained/", 4, "", id="while the model is written"),
        pytest.param(
            "open", "trained/manifest.json", 1, "", id="when nearly all of the model is written"
        ),
        pytest.param(
            "os.remove",
            "trained/_incomplete",
            1,
            "trained/_meta.yaml",
            id="before the model is complete",
        ),
        pytest.param(
            "shutil.rmtree",
            RUN + "checkpoints",
            1,
            "trained/_meta.yaml",
            id="when the model is complete",
        ),
        pytest.param(
            "os.remove", RUN + "config.json", 1, "", id="before the run's last file is removed"
        ),
    ],
)
def test_a_run_killed_while_writing_files_still_ends_with_the_same_result(
    bench: Bench,
    undisturbed: Undisturbed,
    output: Path,
    event: str,
    below: str,
    number: int,
    if_there: str,
) -> None:
    kill = partial(
        kill_at_file_event,
        event=event,
        below=str(output.parent / below),
        number=number,
        if_there=if_there and str(output.parent / if_there),
    )
    killed = bench.train(output, injections=[kill])
    assert killed.statuses == [-signal.SIGKILL]
    ended = bench.train(output)
    assert_undisturbed(ended.statuses, output, undisturbed(1))


def test_a_run_killed_while_publishing_can_start_over(
    bench: Bench, undisturbed: Undisturbed, output: Path
) -> None:
    kill = partial(kill_at_file_event, event="open", below=str(output / "manifest.json"))
    assert bench.train(output, injections=[kill]).statuses == [-signal.SIGKILL]
    assert (output / "_incomplete").exists()
    token = json.loads((run_folder_of(output) / "config.json").read_text())["token"]
    built = Path(gettempdir()) / f"train_pytorch_model-{token}"  # the output is copied from here
    assert (built / "model").exists()
    ended = bench.train(output, "--fresh")
    assert not built.exists()
    assert "Epoch 1/2: " in ended.stdout
    assert_undisturbed(ended.statuses, output, undisturbed(1))


def assert_undisturbed(statuses: list[int], output: Path, expected: Result) -> None:
    """The trained directory is complete and as expected, and no other files are left."""
    assert set(statuses) == {0}
    assert result_of(output) == expected
    assert not run_folder_of(output).exists()
    assert [path.name for path in output.parent.iterdir()] == [output.name]
