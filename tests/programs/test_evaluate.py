"""`evaluate`: its files and messages, and the inputs it refuses."""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support

from tests.painting import paint_folders
from tests.programs.conftest import Trained
from tests.programs.program import Ended, assert_refused, run_program

CATEGORIES = ["blue", "green", "red"]
FILES = {
    *(
        "_meta.yaml",
        "metrics.json",
        "per_class.csv",
        "confusion_matrix.csv",
        "calibration.csv",
        "coverage.csv",
    ),
    *("mistakes.csv", "evaluation.html"),
}


def evaluate(model: Path, images: Path, output: Path, *more: str) -> Ended:
    """Run `evaluate`."""
    return run_program(
        "evaluate", "--trained-model", model, "--dataset", images, "--output", output, *more
    )


@pytest.fixture(scope="module")
def mislabelled(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Validation images plus red ones labelled blue, so that no model classifies all of them
    correctly.
    """
    root = tmp_path_factory.mktemp("mislabelled") / "images"
    shutil.copytree(folders / "validation", root)
    for index in (100, 101):
        shutil.copyfile(root / "red" / f"{index}.png", root / "blue" / f"red {index}.png")
    return root


def test_metrics_agree_with_the_scores(trained: Trained, mislabelled: Path, tmp_path: Path) -> None:
    output, scored = tmp_path / "evaluation", tmp_path / "scores"
    ended = evaluate(trained.output, mislabelled, output)
    assert (ended.status, ended.stderr) == (0, "")
    run_program(
        "score",
        "--trained-model",
        trained.output,
        "--dataset",
        mislabelled,
        "--scored-dataset",
        scored,
    )

    scores = pd.read_csv(scored / "scores.csv")
    probabilities = pd.read_parquet(scored / "_data.parquet")[
        [f"Scored Probabilities_{name}" for name in CATEGORIES]
    ].to_numpy()
    true, predicted = scores["category"], scores["Scored Labels"]
    metrics = json.loads((output / "metrics.json").read_text())
    precision, recall, f1, support = precision_recall_fscore_support(
        true, predicted, labels=CATEGORIES, zero_division=0
    )
    assert metrics["images"] == len(scores) == 11
    assert metrics["left_out"] == 0
    assert metrics["accuracy"] == pytest.approx((true == predicted).mean())
    assert metrics["top5_accuracy"] == 1
    assert metrics["balanced_accuracy"] == pytest.approx(recall.mean())
    assert metrics["macro_f1"] == pytest.approx(f1.mean())
    assert metrics["weighted_precision"] == pytest.approx(precision @ support / 11)
    assert metrics["loss"] == pytest.approx(
        log_loss(true, probabilities, labels=CATEGORIES), rel=1e-6
    )
    assert metrics["mean_confidence"] == pytest.approx(probabilities.max(axis=1).mean(), rel=1e-6)
    matrix = pd.read_csv(output / "confusion_matrix.csv", index_col="category")
    assert list(matrix) == list(matrix.index) == CATEGORIES
    np.testing.assert_array_equal(matrix, confusion_matrix(true, predicted, labels=CATEGORIES))

    # By descending confidence; two copies of one image may be in either order.
    mistakes = pd.read_csv(output / "mistakes.csv")
    wrong = scores[true != predicted].set_index("file_name")
    assert len(wrong) >= 2
    assert sorted(mistakes["file_name"]) == sorted(wrong.index)
    assert mistakes["confidence"].is_monotonic_decreasing
    for mistake in mistakes.itertuples():
        row = wrong.loc[mistake.file_name]
        assert (mistake.category, mistake.predicted) == (row["category"], row["Scored Labels"])
        of_both = [
            row[f"Scored Probabilities_{name}"] for name in (mistake.predicted, mistake.category)
        ]
        assert (mistake.confidence, mistake.category_probability) == pytest.approx(
            of_both, abs=1e-6
        )


def test_the_main_metrics_are_printed(trained: Trained, mislabelled: Path, tmp_path: Path) -> None:
    output = tmp_path / "evaluation"
    ended = evaluate(trained.output, mislabelled, output)
    assert {path.name for path in output.iterdir()} == {*FILES, "twins.csv"}
    assert yaml.safe_load((output / "_meta.yaml").read_text()) == {
        "type": "EvaluationDirectory",
        "extension": {},
    }
    metrics = json.loads((output / "metrics.json").read_text())
    correct = round(metrics["accuracy"] * 11)
    worst = min(metrics["per_class"], key=lambda row: float(row["f1"]))
    counts = f"{correct} of 11 images, 95% interval "
    assert f"Accuracy             {metrics['accuracy']:7.1%}  {counts}" in ended.stdout
    assert (
        f"Baseline             {metrics['baseline_accuracy']:7.1%}  always guessing" in ended.stdout
    )
    assert "Top 5" not in ended.stdout  # with three categories it says nothing
    assert f"Balanced accuracy    {metrics['balanced_accuracy']:7.1%}  mean recall" in ended.stdout
    assert f"Loss                 {metrics['loss']:7.3f}  nats\n" in ended.stdout
    assert (
        f"Worst categories     F1 {worst['f1']:.2f}  recall {worst['recall']:.2f} of"
        in ended.stdout
    )
    assert ended.stdout.endswith(f"The evaluation is in {output}/evaluation.html\n")


def test_the_page_shows_the_mistakes(trained: Trained, mislabelled: Path, tmp_path: Path) -> None:
    evaluate(trained.output, mislabelled, tmp_path / "evaluation")
    page = (tmp_path / "evaluation" / "evaluation.html").read_text(encoding="utf-8")
    mistakes = pd.read_csv(tmp_path / "evaluation" / "mistakes.csv")
    shown = page.partition('<section id="mistakes"')[2].partition("</section>")[0]
    assert shown.count("data:image/webp;base64,") == len(mistakes)
    assert all(f"<bdi>{name}</bdi>" in page.replace("<wbr>", "") for name in mistakes["file_name"])
    assert f"Dataset <bdi>{mislabelled.name}</bdi>" in page
    assert str(tmp_path) not in page
    assert str(trained.output) not in page


def test_mistakes_show_the_original_names_of_converted_images(
    trained: Trained, mislabelled: Path, tmp_path: Path
) -> None:
    converted, of_folders = tmp_path / "converted", tmp_path / "of folders"
    assert run_program("convert", "--input", mislabelled, "--output", converted).status == 0
    evaluate(trained.output, converted, tmp_path / "evaluation")
    evaluate(trained.output, mislabelled, of_folders)
    mistakes = pd.read_csv(tmp_path / "evaluation" / "mistakes.csv")
    known = pd.read_csv(of_folders / "mistakes.csv")
    assert known["original"].isna().all()
    assert len(mistakes) > 0
    assert sorted(mistakes["original"]) == sorted(known["file_name"])
    page = (tmp_path / "evaluation" / "evaluation.html").read_text(encoding="utf-8")
    for name in mistakes["original"]:
        assert f'title="{name}"><bdi>{name}</bdi>' in page.replace("<wbr>", "")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, file names are always valid text")
def test_a_file_name_that_is_not_valid_utf8_is_still_written(
    trained: Trained, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 2)
    for category in CATEGORIES:  # whatever the model predicts, some are mistakes
        shutil.copyfile(images / "red" / "0.png", images / category / f"{category} \udcff.png")
    ended = evaluate(trained.output, images, tmp_path / "evaluation")
    assert (ended.status, ended.stderr) == (0, "")
    output = tmp_path / "evaluation"
    assert rb" \udcff.png</bdi>" in (output / "evaluation.html").read_bytes()
    assert b" \xff.png," in (output / "mistakes.csv").read_bytes()


def test_a_category_without_images_is_a_warning(trained: Trained, tmp_path: Path) -> None:
    images = paint_folders(tmp_path / "images", 2, ("blue", "red"), first=200)
    ended = evaluate(trained.output, images, tmp_path / "evaluation", "--quiet")
    assert (ended.status, ended.stdout) == (0, "")
    assert ended.stderr == f"Warning: Dataset \"{images}\" has no image of category\n  'green'\n"
    metrics = json.loads((tmp_path / "evaluation" / "metrics.json").read_text())
    assert metrics["absent_categories"] == ["green"]
    assert metrics["per_class"][1]["recall"] is None


def test_unreadable_images_are_left_out_listed_and_warned_about(
    trained: Trained, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 3)
    (images / "blue" / "0.png").write_bytes(b"not an image")
    whole = (images / "red" / "1.png").read_bytes()
    (images / "red" / "1.png").write_bytes(whole[: len(whole) // 2])  # its header is good
    output = tmp_path / "evaluation"
    ended = evaluate(trained.output, images, output, "--quiet")
    assert (ended.status, ended.stdout) == (0, "")
    assert ended.stderr.startswith("Warning: 2 unreadable images are left out:")
    with (output / "bad_images.csv").open() as file:
        assert [row["file_name"] for row in csv.DictReader(file)] == ["blue/0.png", "red/1.png"]
    metrics = json.loads((output / "metrics.json").read_text())
    assert (metrics["images"], metrics["left_out"]) == (7, 2)
    assert "2 images could not be read and" in (output / "evaluation.html").read_text(
        encoding="utf-8"
    )


def test_a_category_without_a_readable_image_is_left_out(trained: Trained, tmp_path: Path) -> None:
    images = paint_folders(tmp_path / "images", 1)
    whole = (images / "red" / "0.png").read_bytes()
    (images / "red" / "0.png").write_bytes(whole[: len(whole) // 2])  # its header is good
    output = tmp_path / "evaluation"
    ended = evaluate(trained.output, images, output)
    assert ended.status == 0
    assert "left out:\n  'red': 1 image, such as 'red/0.png': OSError" in ended.stdout
    assert json.loads((output / "metrics.json").read_text())["images"] == 2


def test_images_without_categories_are_refused(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    shutil.copyfile(folders / "validation" / "red" / "100.png", flat / "100.png")
    assert_refused(
        evaluate(trained.output, flat, tmp_path / "evaluation"),
        3,
        f'NotLabeledDatasetError: There is no label column in "Dataset {flat}". Evaluation needs'
        f" a category"
        " for every image: one folder per category, or a labelled ImageDirectory.",
    )
    assert not (tmp_path / "evaluation").exists()


def test_a_category_that_the_model_does_not_know_is_refused(
    trained: Trained, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 1)
    (images / "green").rename(images / "Green")
    assert_refused(
        evaluate(trained.output, images, tmp_path / "evaluation"),
        3,
        f'InvalidDatasetError: Dataset "{images}" is not valid, reason: the model does not know'
        f" 1 of its"
        " categories:\n  'Green'",
        "The model knows:\n  'blue'\n  'green'\n  'red'",
    )
    assert not (tmp_path / "evaluation").exists()


def test_an_untrained_model_is_refused(untrained: Path, folders: Path, tmp_path: Path) -> None:
    assert_refused(
        evaluate(untrained, folders / "validation", tmp_path / "evaluation"),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Trained model {untrained}" is invalid.'
        f" Reason: it is"
        " not trained:",
    )


def test_a_missing_dataset_is_refused(trained: Trained, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert_refused(
        evaluate(trained.output, missing, tmp_path / "evaluation"),
        3,
        f'InvalidDatasetError: Dataset "{missing}" is not valid, reason: there is no such'
        f" directory.",
    )


def test_an_evaluation_is_never_overwritten(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(
        evaluate(trained.output, folders / "validation", tmp_path),
        2,
        f"OutputDirectoryError: --output {tmp_path} is not empty: it holds notes.txt.",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
