"""The folder of a run in progress, interrupted or failed."""

import json
from pathlib import Path

import pytest

from train_pytorch_model.errors import OutputDirectoryError, TrainingError
from train_pytorch_model.formats.run_folder import CHECKPOINTS, RunFolder
from train_pytorch_model.formats.trained_directory import METRICS, write_metrics

FINGERPRINT = {
    "parameters": "--epochs 5 --batch-size 16",
    "training_dataset": "ab",
    "untrained_model": "cd",
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """The folder of a started run with a checkpoint; its output does not exist yet."""
    folder = RunFolder.beside(tmp_path / "trained")
    folder.root.mkdir()
    folder.begin(FINGERPRINT, fresh=False)
    folder.checkpoints.mkdir()
    (folder.checkpoints / "000001-00000000.json").touch()
    write_metrics(folder.metrics_path, [{"epoch": 1}])
    return folder


def test_the_folder_is_next_to_the_output(run: RunFolder, tmp_path: Path) -> None:
    assert run.root == tmp_path / "trained.run"


def test_in_an_azure_job_the_folder_is_in_outputs_which_survives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZUREML_RUN_ID", "a-run")
    assert RunFolder.beside(tmp_path / "trained").root == Path("outputs/train_pytorch_model")


def test_metrics_have_a_line_per_epoch(tmp_path: Path) -> None:
    write_metrics(
        tmp_path / METRICS, [{"epoch": 1, "Valid loss": 0.5}, {"epoch": 2, "Valid loss": 0.25}]
    )
    lines = (tmp_path / METRICS).read_text().splitlines()
    assert [json.loads(line)["Valid loss"] for line in lines] == [0.5, 0.25]


def test_the_same_run_resumes_with_its_files(run: RunFolder) -> None:
    token = run.token
    run.check_resumable(FINGERPRINT)
    run.begin(FINGERPRINT, fresh=False)
    assert run.has_checkpoints
    assert run.metrics_path.exists()
    assert run.token == token != ""


def test_a_different_run_is_refused_with_the_differences(run: RunFolder) -> None:
    other = FINGERPRINT | {"parameters": "--epochs 6 --batch-size 16", "training_dataset": "xy"}
    with pytest.raises(OutputDirectoryError) as raised:
        run.check_resumable(other)
    assert str(raised.value) == (
        f"--trained-model: an unfinished run for this output ({run.root}) differs from this"
        " one:\n  --epochs was 5 and is 6\n  --training-dataset has other content\n"
        "Repeat its command on the same inputs to resume it, start over with --fresh, or name"
        " another output."
    )


def test_a_run_that_completes_meanwhile_is_not_taken_for_another(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complete(folder: RunFolder) -> bool:
        folder.remove()
        return True

    monkeypatch.setattr(RunFolder, "has_checkpoints", property(complete))
    run.check_resumable(FINGERPRINT)
    assert not run.root.exists()


def test_a_run_of_another_version_is_refused(run: RunFolder) -> None:
    (run.root / "config.json").write_text("{}")
    with pytest.raises(OutputDirectoryError, match=r"--epochs was not set and is 5"):
        run.check_resumable(FINGERPRINT)
    (run.root / "config.json").write_text(json.dumps({"fingerprint": FINGERPRINT | {"more": "1"}}))
    with pytest.raises(OutputDirectoryError, match=r"another version of this program"):
        run.check_resumable(FINGERPRINT)


def test_fresh_removes_everything_but_the_token(run: RunFolder) -> None:
    token = run.token
    run.write_micro_batch(4)
    run.mlflow_run.write_text("id")
    run.begin({"parameters": "other"}, fresh=True)
    assert [path.name for path in run.root.iterdir()] == ["config.json"]
    assert run.token == token  # it identifies the previous run's unfinished output
    assert run.read_micro_batch({"parameters": "other"}, fresh=False) is None


def test_without_a_checkpoint_a_different_run_starts_over(run: RunFolder) -> None:
    (run.checkpoints / "000001-00000000.json").unlink()
    run.check_resumable({"parameters": "other"})
    run.begin({"parameters": "other"}, fresh=False)
    assert not (run.root / CHECKPOINTS).exists()
    assert not run.metrics_path.exists()


@pytest.mark.parametrize(
    ("fingerprint", "is_kept"), [(FINGERPRINT, True), ({"parameters": "other"}, False)]
)
def test_only_a_restart_of_the_same_run_keeps_its_mlflow_run(
    run: RunFolder, fingerprint: dict[str, str], is_kept: bool
) -> None:
    (run.checkpoints / "000001-00000000.json").unlink()
    run.mlflow_run.write_text("id")
    run.begin(fingerprint, fresh=False)
    assert run.mlflow_run.exists() == is_kept


@pytest.mark.parametrize(("text", "images"), [("8", 8), ("0", 1), ("many", None)])
def test_the_micro_batch_is_read_from_its_file(
    run: RunFolder, text: str, images: int | None
) -> None:
    assert run.read_micro_batch(FINGERPRINT, fresh=False) is None
    (run.root / "micro_batch").write_text(text)
    assert run.read_micro_batch(FINGERPRINT, fresh=False) == images


@pytest.mark.parametrize(
    ("fingerprint", "fresh", "images"),
    [(FINGERPRINT, False, 4), (FINGERPRINT, True, None), ({"parameters": "other"}, False, None)],
)
def test_the_micro_batch_is_kept_for_the_same_run_only_even_without_a_checkpoint(
    run: RunFolder, fingerprint: dict[str, str], fresh: bool, images: int | None
) -> None:
    (run.checkpoints / "000001-00000000.json").unlink()
    run.write_micro_batch(4)
    assert run.read_micro_batch(fingerprint, fresh) == images
    run.begin(fingerprint, fresh)
    assert run.read_micro_batch(fingerprint, fresh=False) == images


def test_a_failure_is_recorded_with_the_last_checkpoint(run: RunFolder) -> None:
    run.record_failure(TrainingError("It has failed."), rank=1)
    run.record_failure(TrainingError("It has failed elsewhere."), rank=2)
    status = json.loads((run.root / "status.json").read_text())
    assert status["message"] == "It has failed."
    assert (status["class"], status["exit_status"], status["rank"]) == ("TrainingError", 4, 1)
    assert status["last_checkpoint"] == str(run.checkpoints / "000001-00000000.json")
    run.record_failure(TrainingError("Rank 0 knows better."), rank=0)
    assert json.loads((run.root / "status.json").read_text())["message"] == "Rank 0 knows better."
    run.begin(FINGERPRINT, fresh=False)
    assert not (run.root / "status.json").exists()


def test_checkpoints_that_cannot_be_listed_are_an_error_not_a_new_start(tmp_path: Path) -> None:
    run = RunFolder.beside(tmp_path / "trained")
    run.root.mkdir()
    run.checkpoints.touch()
    with pytest.raises(OutputDirectoryError) as raised:
        run.check_resumable(FINGERPRINT)
    assert str(raised.value) == (
        f"--trained-model: the checkpoints of the run, {run.checkpoints}, cannot be read: Not a"
        " directory."
    )


def test_lost_config_and_metrics_are_written_again(run: RunFolder) -> None:
    token = run.token
    run.record_history(FINGERPRINT, token, [{"epoch": 1}])
    for path in (run.root / "config.json", run.metrics_path):
        path.unlink()
    run.record_history(FINGERPRINT, token, [{"epoch": 1}])
    assert run.token == token
    run.check_resumable(FINGERPRINT)
    assert run.metrics_path.read_text() == '{"epoch": 1}\n'


def test_removing_the_folder_keeps_files_of_the_user(run: RunFolder) -> None:
    (run.root / "notes.txt").write_text("mine")
    run.remove()
    assert [path.name for path in run.root.iterdir()] == ["notes.txt"]
    (run.root / "notes.txt").unlink()
    run.remove()
    assert not run.root.exists()
