"""`watch` on what `score` has written, and in Python on what `predict` answers."""

import json
import shutil
from pathlib import Path

import mlflow
import msgspec
import numpy as np
import pytest
from PIL import Image

from tests.programs.conftest import Trained
from tests.programs.program import Ended, assert_refused, run_program
from train_pytorch_model import Model, load
from train_pytorch_model.errors import (
    InvalidDatasetError,
    InvalidModelDirectoryError,
    ParameterError,
)
from train_pytorch_model.formats.histograms import HISTOGRAMS
from train_pytorch_model.formats.seen_images import SeenReader
from train_pytorch_model.quality.drift import histograms_of


def score(model: Path, images: Path, output: Path) -> Path:
    ended = run_program(
        *("score", "--trained-model", model, "--dataset", images, "--scored-dataset", output)
    )
    assert ended.status == 0, ended.stderr
    return output


@pytest.fixture(scope="module")
def root(trained: Trained, folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was validated on many images, like those of `scores`; `dark` has others."""
    root = tmp_path_factory.mktemp("watch")
    model = shutil.copytree(trained.output, root / "model")
    for copy in range(3):
        shutil.copytree(folders / "validation", root / "images" / str(copy))
    for path in (root / "images").rglob("*.png"):
        name = root / "dark-images" / path.relative_to(root / "images")
        name.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            image.point(lambda value: value // 4).save(name)
    reader = SeenReader(["blue", "green", "red"])
    reader.read(score(model, root / "images", root / "scores"))
    seen = reader.seen
    features = {name: np.tile(values, 20) for name, values in seen.features.items()}
    predicted = np.tile(seen.predicted, 20)
    is_hit = np.arange(len(predicted)) % 10 > 0
    histograms = histograms_of(features, features["confidence"], predicted, is_hit, 3)
    (model / HISTOGRAMS).write_bytes(msgspec.json.encode(histograms))
    score(model, root / "dark-images", root / "dark")
    return root


def watch(root: Path, *more: str | Path) -> Ended:
    return run_program("watch", root / "model", "--scores", *more)


def test_images_like_those_of_the_validation_are_told_and_logged(root: Path) -> None:
    ended = watch(root, root / "scores", root / "scores")
    assert (ended.status, ended.stderr) == (0, "")
    assert "54 images: like the validation images. Of 200 checks of such images, " in ended.stdout
    assert "Estimated accuracy, without labels: " in ended.stdout
    experiment = mlflow.get_experiment_by_name("train_pytorch_model")
    assert experiment is not None
    run, *_ = mlflow.MlflowClient().search_runs(
        [experiment.experiment_id],
        "tags.`mlflow.runName` = 'watch'",
    )
    assert run.info.status == "FINISHED"
    assert run.data.metrics["Watched images"] == 54
    assert run.data.metrics["Like the validation images"] == 1


def test_other_images_are_told_with_what_changed_and_where_to_look(
    root: Path, tmp_path: Path
) -> None:
    ended = watch(root, root / "dark", "--output", tmp_path / "watched")
    assert (ended.status, ended.stderr) == (0, "")
    assert "27 images: not like the validation images. What changed: " in ended.stdout
    assert "brightness (median 0." in ended.stdout
    assert "Look at these first:\n  " in ended.stdout
    assert f"train_pytorch_model review {root}/model --dataset FOLDER\n" in ended.stdout
    answer = json.loads((tmp_path / "watched" / "watch.json").read_text())
    assert answer["sentences"][0] in " ".join(ended.stdout.split())
    assert answer["numbers"]["Like the validation images"] == 0
    assert answer["numbers"]["p value of brightness"] < 0.005
    lines = (tmp_path / "watched" / "look_first.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == ("file_name,label,confidence,energy", 28)
    ended = watch(root, root / "dark", "--output", tmp_path / "watched")
    assert_refused(ended, 2, "OutputDirectoryError: --output ", "`--overwrite`")
    assert watch(root, root / "dark", "--output", tmp_path / "watched", "--overwrite").status == 0


def test_a_name_that_a_stranger_has_sent_cannot_look_like_a_line_of_the_program(
    root: Path, tmp_path: Path
) -> None:
    answers = load(root / "model").predict(root / "dark-images", watch=True)
    answers["image"] = "\n\x1b[2J" + answers["image"]
    answers.to_parquet(tmp_path / "answers.parquet")
    ended = watch(root, tmp_path / "answers.parquet")
    assert ended.status == 0
    assert "\n  \\n\\x1b[2J" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_python_watches_what_predict_answers(root: Path, folders: Path) -> None:
    model: Model = load(root / "model")
    answers = model.predict(root / "dark-images", watch=True)
    watched = model.watch(answers)
    assert not watched.is_like
    assert {change.feature for change in watched.drift.changes} >= {"brightness"}
    assert str(watched).startswith("27 images: not like the validation images. ")
    assert list(watched.images) == ["file_name", "label", "confidence", "energy"]
    assert model.watch([root / "scores", answers]).drift.images == 54
    few = model.watch(model.predict(next((folders / "validation").rglob("*.png")), watch=True))
    assert str(few).startswith("1 image cannot be compared with 540 validation images: at least 20")
    with pytest.raises(InvalidDatasetError, match="The DataFrame is not valid, reason: it has no"):
        model.watch(model.predict(folders / "validation"))
    with pytest.raises(
        InvalidDatasetError, match="Scores is not valid, reason: they hold no image"
    ):
        model.watch(answers.iloc[:0])
    with pytest.raises(ParameterError, match=r"`tables` should be the path of .* None"):
        model.watch(None)
    with pytest.raises(InvalidDatasetError, match="Scores is not valid, reason: none are given"):
        model.watch([])


def test_a_model_or_scores_of_an_earlier_version_are_refused(
    root: Path, trained: Trained, tmp_path: Path
) -> None:
    model = shutil.copytree(trained.output, tmp_path / "model")
    (model / HISTOGRAMS).unlink()
    with pytest.raises(
        InvalidModelDirectoryError, match=r"histograms\.json is missing\. Train the"
    ):
        load(model).watch(root / "scores")
    (tmp_path / "nothing").mkdir()
    assert_refused(
        watch(root, tmp_path / "nothing"), 3, "InvalidDatasetError: ", "it has no seen.parquet"
    )
