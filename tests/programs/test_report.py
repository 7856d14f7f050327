"""`report.html`: every training writes it, and no training fails because of it."""

import errno
import json
import os
import re
import shutil
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.pages import Page
from tests.painting import paint_folders
from tests.programs.conftest import Trained
from tests.programs.program import FEW_IMAGES, Ended, assert_refused, run_program, train_arguments
from tests.ranks.conftest import torchrun
from tests.trainings import SMALL
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.publishing import examine, report
from train_pytorch_model.stories import train as training
from train_pytorch_model.training import progress
from train_pytorch_model.training.batches import Batches
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.saver import Saver
from train_pytorch_model.training.state import State

NUMBERS = ("numbers", "confusion", "mistakes", "calibration", "data")


def read_page(directory: Path, name: str = "report.html") -> Page:
    """The parsed page of a trained directory or of an evaluation."""
    return Page((directory / name).read_text(encoding="utf-8"))


def part(page: Page, name: str) -> str:
    """The HTML of a section."""
    return page.html.partition(f'<section id="{name}"')[2].partition("</section>")[0]


def figures(page: Page) -> list[str]:
    """The main numbers with their explanations."""
    texts = [text for text in page.texts("dt") + page.texts("dd") if text.strip()]
    return [text for text in texts if not re.fullmatch(r"[0-9a-f]{64}", text)]


def train(folders: Path, untrained: Path, output: Path, *more: str) -> Ended:
    """Train for one epoch, or as many as the options say."""
    return run_program(*train_arguments(folders, untrained, output, "--epochs", "1", *more))


def test_training_writes_a_report(trained: Trained) -> None:
    page = read_page(trained.output)
    assert page.texts("h1") == [f"Training report: {SMALL}"]
    for text in (
        "trained on training , 12 images validated on validation , 9 images 3 categories",
        f"Model {SMALL}, 3 categories",
        "Steps 3 per epoch, 6 in total: 4 images per step = batch size 4 x 1 process",
        *("Random seed 42", "Epochs 2", "-bound: "),
        "None: every image could be read, every category has images, and there are no other files.",
        "3 of 3 categories have fewer than 10 validation images: their metrics are noisy.",
    ):
        assert text in page.text
    command = page.html.partition("<pre")[2].partition("</pre>")[0]
    assert re.findall(r"<bdi>(.*?)</bdi>", command)[:5] == [
        "python -m train_pytorch_model train",
        "--untrained-model small",
        "--training-dataset training",
        "--validation-dataset validation",
        "--trained-model &#39;trained model&#39;",
    ]
    assert (
        f"Report on the training and the model: {trained.output}/report.html\n"
        in trained.ended.stdout
    )
    assert "report.html" in json.loads((trained.output / "manifest.json").read_text())["files"]


def test_the_report_has_the_numbers_of_evaluate(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    ended = run_program(
        *("evaluate", "--trained-model", trained.output, "--dataset", folders / "validation"),
        *("--output", tmp_path / "evaluation"),
    )
    assert ended.status == 0, ended.stderr
    report, evaluation = (
        read_page(trained.output),
        read_page(tmp_path / "evaluation", "evaluation.html"),
    )
    own = figures(evaluation)
    assert len(own) == 18
    assert set(own) <= set(figures(report))
    assert part(report, "confusion") == part(evaluation, "confusion")
    # Only training knows about the temperature.
    calibration = re.sub(
        r"The probabilities are those of the[^<]*", "", part(report, "calibration")
    )
    assert calibration == part(evaluation, "calibration")


def test_early_stopping_reports_the_skipped_epochs(stopped: Trained) -> None:
    done = len((stopped.output / "metrics.jsonl").read_text().splitlines())
    sentence = (
        "Stopped early: 2 epochs in a row without a lower validation loss. This skipped"
        f" {12 - done} of 12 epochs, in which the learning rate would have continued from "
    )
    assert sentence in stopped.ended.stdout
    assert sentence in read_page(stopped.output).text


def test_a_resumed_run_writes_the_same_report(
    stopped: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "trained model"
    arguments = [str(output) if text == str(stopped.output) else text for text in stopped.arguments]

    def refuse(*_: object) -> None:
        raise OutputDirectoryError("the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(training, "publish", refuse)
        assert_refused(
            run_program(*arguments),
            4,
            "TrainingError: The model is trained, but: the disk is full.",
        )
    ended = run_program(*arguments)
    assert ended.status == 0, ended.stderr
    assert "after the last epoch; only the trained model directory is missing" in ended.stdout
    assert "Stopped early: 2 epochs in a row" in ended.stdout
    page, whole = read_page(output), read_page(stopped.output)
    for name in NUMBERS:
        assert part(page, name) == part(whole, name)
    assert epochs_of(page) == epochs_of(whole)
    trained_share = re.search(r"Training batches [^%]* ([\d.]+)%", page.text)
    assert trained_share is not None  # although it was trained before the restart
    assert float(trained_share[1]) > 0


def test_a_stop_during_the_report_loses_nothing(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_and_go_on(_: Engine, __: State, ___: Batches, saver: Saver) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:  # until the signal is handled
            saver.after_validation_batch()

    output = tmp_path / "trained"
    with monkeypatch.context() as patch:
        patch.setattr(examine, "_best_results", stop_and_go_on)
        ended = train(folders, untrained, output)
    assert ended.status == 128 + signal.SIGTERM
    assert "Stopped by SIGTERM. The same command resumes from here;" in ended.stderr
    assert not output.exists()
    ended = train(folders, untrained, output)
    assert ended.status == 0, ended.stderr
    assert "after the last epoch; only the trained model directory is missing" in ended.stdout
    assert (output / "report.html").exists()


def epochs_of(page: Page) -> list[list[str]]:
    """The rows of the table of epochs, without the speed."""
    rows = part(page, "curves").partition("<tbody>")[2].split("<tr")[1:]
    return [re.findall(r'<td class="number">([^<]*)', row)[:-1] for row in rows]


def test_two_processes_write_a_report_that_agrees_with_evaluate(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    output = tmp_path / "trained"
    arguments = train_arguments(folders, untrained, output, "--epochs", "1")
    ended = torchrun(2, "-m", "train_pytorch_model", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert (ended.stdout + ended.stderr).count("Warning") == 1  # about the few images
    report = read_page(output)
    assert "torchrun --standalone --nproc-per-node=2 -m train_pytorch_model train" in report.text
    evaluated = run_program(
        *("evaluate", "--trained-model", output, "--dataset", folders / "validation"),
        *("--output", tmp_path / "evaluation"),
    )
    assert evaluated.status == 0, evaluated.stderr
    evaluation = read_page(tmp_path / "evaluation", "evaluation.html")
    assert set(figures(evaluation)) <= set(figures(report))
    assert part(report, "confusion") == part(evaluation, "confusion")


def test_the_report_lists_unreadable_images_and_other_files(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "training", 4)
    (images / "green" / "2.png").write_bytes(b"not an image")
    (images / "red" / "notes.txt").write_text("no image at all")
    output = tmp_path / "trained"
    ended = run_program(
        *train_arguments(folders, untrained, output, "--epochs", "1", training=images)
    )
    assert ended.status == 0, ended.stderr
    text = read_page(output).text
    assert "1 image could not be read and is left out." in text
    assert "green/2.png green Training dataset" in text
    assert "Skipped in the training dataset: files of another kind (.txt) : 1." in text
    assert "From 3 to 4 training images per category." in text


@pytest.mark.parametrize(
    ("module", "function", "warning"),
    [
        (
            examine,
            "_best_results",
            "The best epoch cannot be validated again: MemoryError: no room at all. The model has"
            " no report,"
            " and its probabilities are not calibrated.",
        ),
        (
            report,
            "render_report",
            "report.html could not be created: MemoryError: no room at all. The model is not"
            " affected.",
        ),
    ],
)
def test_a_report_that_cannot_be_created_does_not_fail_the_run(
    module: ModuleType,
    function: str,
    warning: str,
    folders: Path,
    untrained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> str:
        if function == "_best_results":
            return (
                "MemoryError: no room at all"  # of one of the processes, which the others are told
            )
        raise MemoryError("no room\nat all")

    monkeypatch.setattr(module, function, fail)
    output = tmp_path / "trained"
    ended = train(folders, untrained, output, "--quiet")
    assert ended.status == 0
    assert ended.stderr == f"{FEW_IMAGES}Warning: {warning}\n"
    assert (output / "_meta.yaml").exists()
    assert not (output / "report.html").exists()


def test_a_report_that_cannot_be_written_does_not_fail_the_run(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text = Path.write_text

    def fill_the_disk(path: Path, text: str, *options: Any, **more: Any) -> int:
        if path.name == "report.html":
            write_text(path, text[:100], *options, **more)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, text, *options, **more)

    monkeypatch.setattr(Path, "write_text", fill_the_disk)
    output = tmp_path / "trained"
    ended = train(folders, untrained, output, "--quiet")
    assert ended.status == 0
    assert ended.stderr == FEW_IMAGES + (
        "Warning: report.html cannot be written: No space left on device. The model is not"
        " affected.\n"
    )
    assert (output / "_meta.yaml").exists()
    assert not (output / "report.html").exists()


def test_mlflow_receives_the_report_and_the_confusion_matrix(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}")
    (tmp_path / "store").mkdir()
    output = tmp_path / "trained"
    ended = train(folders, untrained, output)
    assert ended.status == 0, ended.stderr
    (report,) = (tmp_path / "store").rglob("report.html")
    assert report.read_bytes() == (output / "report.html").read_bytes()
    matrix = report.with_name("confusion_matrix.csv").read_text().splitlines()
    assert matrix[0] == "category,blue,green,red"
    counts = [[int(cell) for cell in line.split(",")[1:]] for line in matrix[1:]]
    assert [sum(row) for row in counts] == [3, 3, 3]


def test_a_store_that_rejects_artifacts_does_not_fail_the_run(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    (tmp_path / "a file").touch()
    client = mlflow.MlflowClient()
    location = (tmp_path / "a file" / "artifacts").as_uri()
    experiment = client.create_experiment("train_pytorch_model", artifact_location=location)
    output = tmp_path / "trained"
    ended = train(folders, untrained, output, "--quiet")
    assert ended.status == 0
    assert ended.stderr.startswith(f"{FEW_IMAGES}Warning: MLflow does not have the report (")
    assert ended.stderr.count("\n") == 2
    assert (output / "report.html").exists()
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["Valid loss"] > 0


def test_a_long_run_on_a_cpu_is_a_warning(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training_images = paint_folders(tmp_path / "training", 8)
    arguments = train_arguments(
        folders,
        untrained,
        tmp_path / "trained",
        "--epochs",
        "2",
        "--batch-size",
        "2",
        training=training_images,
    )
    warning = "At the speed of the first steps, 48 images (2 epochs) take about "
    assert warning not in run_program(*arguments).stdout
    shutil.rmtree(tmp_path / "trained")
    monkeypatch.setattr(progress, "LONG_RUN_S", 0.0)
    said = run_program(*arguments).stdout
    assert said.count(warning) == 1
    assert (
        " on this CPU. A GPU takes a small part of that. Fewer --epochs or, in init-model," in said
    )
