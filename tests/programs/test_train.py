"""`train`, from end to end."""

import csv
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.painting import paint_folders
from tests.programs.conftest import Trained
from tests.programs.program import (
    FEW_IMAGES,
    assert_refused,
    read_weights,
    run_program,
    train_arguments,
)
from tests.trainings import SMALL

METRICS = (
    "Train images per second",
    "Train loss",
    "Train error",
    "Valid loss",
    "Top 1 accuracy",
    "Top 5 accuracy",
    "Learning rate",
)


def read_metrics(output: Path) -> list[dict[str, Any]]:
    """The metrics of each epoch of a trained directory."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def everything_in(root: Path) -> dict[str, tuple[int, int]]:
    """All files and folders, with size and modification time."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
    }


def test_the_model_is_synced_to_disk_before_its_checkpoints_are_deleted(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test cannot cut the power: it checks that everything is synced while checkpoints exist."""
    output, checkpoints = tmp_path / "trained", tmp_path / "trained.run" / "checkpoints"
    synced: set[int] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        if (output / "_meta.yaml").exists() and checkpoints.exists():
            synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    ended = run_program(*train_arguments(folders, untrained, output, "--epochs", "1"))
    assert ended.status == 0, ended.stderr
    assert {path.stat().st_ino for path in (tmp_path, output, *output.rglob("*"))} <= synced


def test_training_prints_its_plan_its_epochs_and_the_next_steps(trained: Trained) -> None:
    said = trained.ended.stdout
    assert said.startswith("Train PyTorch Model ")
    for text in (
        f"Model       {SMALL}, 3 categories\n",
        "Images      12 for training, 9 for validation\n",
        "Size        32 x 32 px (the recipe says so",
        "Steps       3 per epoch, 6 in total: 4 images per step = batch size 4 x 1 process\n",
        "Peak LR     0.001 = learning rate 0.001 x 1 process, no warmup, polynomial decay",
        "Precision   float32 (the recipe says so)\n",
        "Threads     2, as OMP_NUM_THREADS says\n",
        "Epoch 1/2 3/3  loss ",
        "Epoch 2/2: training loss ",
        f"The trained model is in {trained.output}. Next steps:\n",
        f"score --trained-model '{trained.output}' --dataset ",
        f"evaluate --trained-model '{trained.output}' --dataset FOLDER --output evaluation",
    ):
        assert text in said
    assert trained.ended.stderr == ""
    assert FEW_IMAGES in said
    assert said.count("Warning") == 1


def test_a_trained_directory_is_complete(trained: Trained) -> None:
    assert {path.name for path in trained.output.iterdir()} == {
        *(
            "_meta.yaml",
            "_samples.json",
            "_schema.json",
            "index_to_label.csv",
            "model",
            "model_spec.yaml",
        ),
        *(
            "MLmodel",
            "code",
            "conda.yaml",
            "input_example.json",
            "python_env.yaml",
            "requirements.txt",
        ),
        *(
            "serving_input_example.json",
            "manifest.json",
            "metrics.jsonl",
            "report.html",
            "model_card.md",
        ),
        *("image_hashes.bin", "known.json", "histograms.json", "azureml_model.yaml"),
    }
    assert [path.name for path in trained.output.parent.iterdir()] == [trained.output.name]
    meta = yaml.safe_load((trained.output / "_meta.yaml").read_text())
    assert meta == {
        "type": "ModelDirectory",
        "extension": {},
        "model": "model_spec.yaml",
        "registerModel": True,
        "modelOutputPath": "trained_model_outputs",
    }


def test_the_model_card_and_mlflow_say_what_the_model_is(trained: Trained) -> None:
    facts = yaml.safe_load((trained.output / "MLmodel").read_text())["metadata"]
    best = min(read_metrics(trained.output), key=lambda record: record["Valid loss"])
    assert facts["validation_accuracy"] == best["Top 1 accuracy"]
    lowest, highest = facts["validation_accuracy_interval"]
    assert lowest <= facts["validation_accuracy"] <= highest
    assert (facts["task"], facts["base_model_name"]) == ("image-classification", SMALL)
    assert (facts["num_categories"], facts["validation_images"], facts["training_images"]) == (
        3,
        9,
        12,
    )
    card = (trained.output / "model_card.md").read_text()
    assert f"# Image classifier: {SMALL}, 3 categories" in card
    assert "Categories: `blue`, `green`, `red`." in card
    assert f"| validation accuracy | {facts['validation_accuracy']:.1%} of 9 images |" in card
    registered = yaml.safe_load((trained.output / "azureml_model.yaml").read_text())
    assert registered["description"] == card
    assert registered["tags"].items() <= {name: str(value) for name, value in facts.items()}.items()


def test_the_model_knows_its_categories(trained: Trained) -> None:
    assert (trained.output / "index_to_label.csv").read_text() == ",label\n0,blue\n1,green\n2,red\n"
    spec = yaml.safe_load((trained.output / "model_spec.yaml").read_text())
    assert spec["flavor_extras"]["init_params"] == {
        "model_name": SMALL,
        "pretrained": False,
        "num_classes": 3,
    }
    weights = read_weights(trained.output)
    assert weights["model.fc.weight"].shape == (3, 96)
    assert weights["model.conv1.0.weight"].shape == (16, 3, 3, 3)


def test_settings_chosen_by_each_training_stay_out_of_the_recipe(trained: Trained) -> None:
    recipe = yaml.safe_load((trained.output / "model_spec.yaml").read_text())["recipe"]
    assert recipe["image_size"] == [32, 32]  # scoring needs it, too
    left_open = {
        "augmentation",
        "cutmix",
        "early_size",
        "horizontal_flip",
        "label_smoothing",
        "training_size",
    }
    assert left_open.isdisjoint(recipe)


def written_files(root: Path) -> list[Path]:
    """The files of a model, without what Python has compiled since for whoever has loaded it."""
    return [path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"]


def test_the_manifest_describes_every_file(trained: Trained) -> None:
    files = json.loads((trained.output / "manifest.json").read_text())["files"]
    found = {
        path.relative_to(trained.output).as_posix(): {
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in written_files(trained.output)
        if path.name not in ("manifest.json", "_meta.yaml")
    }
    assert files == found


def test_a_trained_directory_contains_no_local_paths(trained: Trained, folders: Path) -> None:
    private = [
        str(folders).encode(),
        str(trained.output).encode(),
        str(Path.home()).encode() + b"/",
    ]
    for path in written_files(trained.output):
        content = path.read_bytes()
        assert not [text for text in private if text in content], path


def test_every_epoch_has_the_documented_metrics(trained: Trained) -> None:
    records = read_metrics(trained.output)
    assert [(record["epoch"], record["step"]) for record in records] == [(1, 3), (2, 6)]
    for record in records:
        assert tuple(record) == ("epoch", "step", *METRICS)
        assert record["Train images per second"] > 0
        assert record["Train loss"] > 0
        assert record["Valid loss"] > 0
        assert 0 <= record["Train error"] <= 1
        assert 0 <= record["Top 1 accuracy"] <= record["Top 5 accuracy"] == 1
    # At the last step of each epoch: 0.001 x (1 - s / 6) ** 2 for s = 2 and 5.
    assert [record["Learning rate"] for record in records] == pytest.approx(
        [0.001 * 4 / 9, 0.001 / 36]
    )


def test_mlflow_has_the_same_metrics(trained: Trained) -> None:
    import mlflow

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("train_pytorch_model")
    assert experiment is not None
    records = read_metrics(trained.output)
    speed = "Train images per second"  # unique to each run, to the last digit
    runs = [
        run
        for run in client.search_runs([experiment.experiment_id])
        if run.data.metrics.get(speed) == records[-1][speed]
    ]
    assert len(runs) == 1
    assert runs[0].data.params["random_seed"] == "42"
    assert runs[0].info.status == "FINISHED"
    told = {
        "learning_rate": "0.001",
        "processes": "1",
        "categories": "3",
        "horizontal_flip": "True",
    }
    assert told.items() <= runs[0].data.params.items()
    for name in METRICS:
        history = client.get_metric_history(runs[0].info.run_id, name)
        times = [
            runs[0].info.start_time,
            *(metric.timestamp for metric in history),
            runs[0].info.end_time,
        ]
        assert times == sorted(set(times))  # when epochs ended, not when MLflow logged them
        assert [(metric.step, metric.value) for metric in history] == [
            (record["epoch"], record[name]) for record in records
        ]


def test_the_same_command_again_returns_at_once_and_changes_nothing(trained: Trained) -> None:
    before = everything_in(trained.output.parent)
    complete = f"{trained.output} is already complete, from this same command.\n"
    no_more = "--fresh is for unfinished runs: to train again, name another output.\n"
    for more, end in ((), complete), (("--fresh",), complete + no_more):
        ended = run_program(*trained.arguments, *more)
        assert ended.status == 0
        assert ended.stdout.endswith(end)
        assert "Epoch" not in ended.stdout
    assert everything_in(trained.output.parent) == before


@pytest.mark.parametrize(
    "change", [("--epochs", "3"), ("--random-seed", "1"), ("--learning-rate", "0.002")]
)
def test_a_trained_directory_is_not_overwritten_unasked(
    trained: Trained, change: tuple[str, str]
) -> None:
    before = everything_in(trained.output.parent)
    arguments = list(trained.arguments)
    if change[0] in arguments:
        place = arguments.index(change[0])
        arguments[place : place + 2] = change
    else:
        arguments += change
    assert_refused(
        run_program(*arguments),
        2,
        f"OutputDirectoryError: --trained-model {trained.output} holds a finished model, of other",
        f"\n  {change[0]} ",
        f" → {change[1]}\n`--overwrite` replaces it once the new one is complete. Or name another",
    )
    assert everything_in(trained.output.parent) == before


def test_the_same_seed_gives_a_bitwise_identical_model(
    trained: Trained, trained_again: Trained
) -> None:
    weights, again = read_weights(trained.output), read_weights(trained_again.output)
    assert list(weights) == list(again)
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    speed = {"Train images per second": 0}
    assert [record | speed for record in read_metrics(trained.output)] == [
        record | speed for record in read_metrics(trained_again.output)
    ]


def test_another_seed_gives_another_model(trained: Trained, other_seed: Trained) -> None:
    weights, others = read_weights(trained.output), read_weights(other_seed.output)
    assert not torch.equal(weights["model.fc.weight"], others["model.fc.weight"])
    losses, other_losses = (
        [record["Valid loss"] for record in read_metrics(each.output)]
        for each in (trained, other_seed)
    )
    assert losses != other_losses


def test_quiet_training_prints_only_warnings(trained_again: Trained) -> None:
    assert (trained_again.ended.stdout, trained_again.ended.stderr) == ("", FEW_IMAGES)


def test_training_stops_when_patience_runs_out(stopped: Trained) -> None:
    losses = [record["Valid loss"] for record in read_metrics(stopped.output)]
    assert 3 <= len(losses) < 12
    assert losses[-3] <= losses[-2] <= losses[-1]
    assert (
        "Stopped early: 2 epochs in a row without a lower validation loss." in stopped.ended.stdout
    )
    assert "the learning rate only rises, and never decays." in stopped.ended.stdout


def test_the_weights_of_the_best_epoch_are_written(
    stopped: Trained, folders: Path, tmp_path: Path
) -> None:
    losses = [record["Valid loss"] for record in read_metrics(stopped.output)]
    best = min(losses)
    assert best < 0.9 * losses[-1]
    ended = run_program(
        *("score", "--trained-model", stopped.output, "--dataset", folders / "validation"),
        *("--scored-dataset", tmp_path / "scores"),
    )
    assert ended.status == 0, ended.stderr
    with (tmp_path / "scores" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    scored = [-math.log(float(row["Scored Probabilities_" + row["category"]])) for row in rows]
    assert sum(scored) / len(scored) == pytest.approx(best, rel=1e-4)
    assert f"Best epoch: {losses.index(best) + 1}, " in stopped.ended.stdout


def test_a_failed_training_leaves_its_run_files_and_no_model(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    ended = run_program(
        *train_arguments(folders, untrained, tmp_path / "trained", "--learning-rate", "1e30")
    )
    assert_refused(
        ended,
        4,
        "TrainingError: The training loss is no longer a finite number at step ",
        " of epoch 1, after halving the learning rate 3 times. Lower --learning-rate, now 1e+30, or"
        " warm up with --warmup-step-number.",
    )
    assert ended.stdout.count("the learning rate halved from here on (") == 3
    run = tmp_path / "trained.run"
    assert list(tmp_path.iterdir()) == [run]
    assert f"The files of the failed run are in {run}\n" in ended.stdout
    status = json.loads((run / "status.json").read_text())
    assert (status["class"], status["exit_status"], status["rank"]) == ("TrainingError", 4, 0)


def test_a_few_unreadable_images_are_left_out_and_listed(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    training = paint_folders(tmp_path / "training", 4)
    (training / "green" / "2.png").write_bytes(b"not an image")
    whole = (training / "red" / "1.png").read_bytes()
    (training / "red" / "1.png").write_bytes(whole[: len(whole) // 2])  # its header is good
    (training / "red" / "notes.txt").write_text("no image at all")
    output = tmp_path / "trained"
    ended = run_program(
        *train_arguments(folders, untrained, output, "--epochs", "2", training=training)
    )
    assert ended.status == 0, ended.stderr
    assert "Images      11 for training" in ended.stdout
    assert "skipped: files of another kind (.txt): 1" in ended.stdout
    with (output / "bad_images.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["port"], row["file_name"], row["category"]) for row in rows] == [
        ("Training dataset", "green/2.png", "green"),
        ("Training dataset", "red/1.png", "red"),
    ]
    assert all(row["reason"] in ended.stdout for row in rows)
