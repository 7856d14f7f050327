"""`train --dry-run`: three steps, and nothing written."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.program import assert_refused, run_program, train_arguments
from train_pytorch_model.stories import train
from train_pytorch_model.training.batches import BatchLoader
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.metrics import Metrics
from train_pytorch_model.training.state import State


def test_a_dry_run_trains_three_steps_and_writes_nothing(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    store = Path(tmp_path, "tracking")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
        patch.chdir(tmp_path)
        ended = run_program(
            *train_arguments(folders, untrained, tmp_path / "a" / "trained", "--batch-size", "2"),
            "--dry-run",
        )
    assert ended.status == 0, ended.stderr
    assert re.search(
        r"\nDry run: 3 steps, training loss \d\.\d{4}; nothing was written\. ", ended.stdout
    )
    assert ended.stdout.endswith(" Leave out --dry-run to train.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_refuses_a_non_empty_output(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/mine.txt").touch()
    arguments = train_arguments(folders, untrained, tmp_path / "trained", "--dry-run")
    ended = run_program(*arguments)
    assert_refused(
        ended, 2, f"OutputDirectoryError: --trained-model {tmp_path / 'trained'} is not empty: it"
    )


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.parametrize("name", ["/", "a file/trained"])
def test_an_output_that_cannot_be_written_is_refused_before_training(
    name: str, options: tuple[str, ...], folders: Path, untrained: Path, tmp_path: Path
) -> None:
    (tmp_path / "a file").touch()
    output = tmp_path / name  # `/` stays `/`
    ended = run_program(*train_arguments(folders, untrained, output, *options))
    assert_refused(ended, 2, f"OutputDirectoryError: --trained-model {output} ")


def test_a_dry_run_that_fails_writes_nothing(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    arguments = train_arguments(folders, untrained, tmp_path / "trained", "--learning-rate", "1e30")
    assert_refused(run_program(*arguments, "--dry-run"), 4, "TrainingError: The training loss is ")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_with_a_nan_validation_loss_fails(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nan(_: Engine, state: State, __: BatchLoader) -> Iterator[None]:
        state.validated = Metrics(math.nan, 0.0, 0.0, 1)
        yield

    monkeypatch.setattr(train, "validate", find_nan)
    arguments = train_arguments(folders, untrained, tmp_path / "trained")
    assert_refused(
        run_program(*arguments, "--dry-run"), 4, "TrainingError: The validation loss is nan within"
    )
