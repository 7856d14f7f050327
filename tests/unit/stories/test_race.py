"""`fit` with minutes, as a whole: tiny networks race on painted images."""

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.painting import paint_folders
from tests.trainings import TINY

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.errors import OutputDirectoryError, ParameterError
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.formats.race_record import RaceRecord, read_race, read_race_arrays
from train_pytorch_model.formats.run_folder import UNTRAINED
from train_pytorch_model.formats.trained_directory import differences
from train_pytorch_model.inference.features import FeatureExtractor, Features
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.publishing.raced_model import write_raced_model
from train_pytorch_model.stories import race as race_story
from train_pytorch_model.stories.fit import Fitted, fit
from train_pytorch_model.stories.init_model import initialize

SMALL = Recipe(image_size=32)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint_folders(tmp_path_factory.mktemp("race") / "photographs", 10)


@pytest.fixture(scope="module")
def candidates(photographs: Path) -> tuple[str, ...]:
    """Two networks of random weights."""
    directories = []
    for seed, architecture in enumerate((TINY, "timm:test_resnet"), 1):
        path = photographs.parent / f"untrained{seed}"
        initialize(ModelOptions(architecture=architecture, recipe=SMALL), seed, path)
        directories.append(str(path))
    return tuple(directories)


def stopped_by_nobody() -> AbstractContextManager[StopRequests]:
    return nullcontext(StopRequests())


def options_for(candidates: tuple[str, ...], output: Path, recipe: Recipe = SMALL) -> FitOptions:
    return FitOptions(
        output=output,
        minutes=5.0,
        candidates=candidates,
        recipe=recipe,
        parameters=TrainConfig(epochs=2, batch_size=8),
        group_by="none",  # painted images look alike
    )


def run(photographs: Path, options: FitOptions) -> Fitted:
    return fit(photographs, options, stops=stopped_by_nobody)


@pytest.fixture(scope="module")
def fitted(photographs: Path, candidates: tuple[str, ...]) -> Path:
    options = options_for(candidates, photographs.parent / "model")
    return run(photographs, options).model


def record_of(model: Path) -> RaceRecord:
    return read_race(model)


def test_the_table_is_wherever_it_is_asked_for(fitted: Path, candidates: tuple[str, ...]) -> None:
    race = json.loads((fitted / "evaluation/metrics.json").read_text())["race"]
    assert {row["name"] for row in race["candidates"]} == set(candidates)
    for row in race["candidates"]:
        low, high = row["accuracy_interval"]
        assert low <= row["accuracy"] <= high
        assert row["images_per_second"] > 0
        assert row["megabytes"] > 0
    assert race["images"] == 24  # training and validation
    for page in ("report.html", "model_card.md", "race.json"):
        assert Path(race["chosen"]).name in (fitted / page).read_text()


def test_the_licence_of_the_weights_is_in_model_and_card(
    photographs: Path, candidates: tuple[str, ...], tmp_path: Path
) -> None:
    licensed = tmp_path / "licensed"
    shutil.copytree(candidates[0], licensed)
    spec = licensed / "model_spec.yaml"
    spec.write_text(spec.read_text() + "weights_licence: cc-by-nc-4.0\n")
    frozen = Recipe(image_size=32, freeze_backbone=True)
    model = run(photographs, options_for((str(licensed),), tmp_path / "model", frozen)).model
    assert open_model_directory(model, "Model").weights_licence == "cc-by-nc-4.0"
    assert "which does not allow every use" in (model / "model_card.md").read_text()
    assert "which does not allow every use" in (model / "report.html").read_text()
    assert record_of(model).candidates[0].licence == "cc-by-nc-4.0"


def test_nothing_is_left_beside_the_model(fitted: Path) -> None:
    assert sorted(path.name for path in fitted.parent.iterdir()) == [
        "model",
        "photographs",
        "untrained1",
        "untrained2",
    ]
    assert differences(fitted) == []


def test_the_same_command_finds_its_work_done(
    fitted: Path, photographs: Path, candidates: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    assert run(photographs, options_for(candidates, fitted)).evaluation is None
    assert "already complete, from this same command" in caplog.text
    with pytest.raises(OutputDirectoryError, match="holds a finished model, of other images or"):
        run(photographs, options_for(candidates[:1], fitted))


def test_an_interrupted_race_goes_on_with_the_same_bits(
    fitted: Path,
    photographs: Path,
    candidates: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = options_for(candidates, tmp_path / "model")
    calls: list[int] = []
    compute = FeatureExtractor.features

    def interrupted(*args: object) -> Features:
        calls.append(1)
        if len(calls) == 3:  # after the first one's two parts
            raise KeyboardInterrupt
        return compute(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(FeatureExtractor, "features", interrupted)
        patch.setattr(FeatureExtractor, "seconds_per_image", lambda *_: 0.01)
        with pytest.raises(KeyboardInterrupt):
            run(photographs, options)
    assert "the same command goes on" in caplog.text
    assert len(list((tmp_path / "model.run").glob("race-*/features-*.npz"))) == 1

    # As of a process that was killed.
    dead = "filelock/2\npid=1073741823\nhost=elsewhere-now\nmode=lease\ntoken=0\nduration=30.0\n"
    for work in (tmp_path / "model.run").glob("race-*"):
        (work / "lock").write_text(dead.replace("elsewhere-now", socket.gethostname()))

    counted: list[int] = []

    def counting(*args: object) -> Features:
        counted.append(1)
        return compute(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(FeatureExtractor, "features", counting)
    run(photographs, options)
    assert len(counted) == 2  # the parts of the second one
    assert (tmp_path / "model/model").read_bytes() == (fitted / "model").read_bytes()
    assert not (tmp_path / "model.run").exists()


@pytest.fixture(scope="module")
def solved(photographs: Path, candidates: tuple[str, ...]) -> Iterator[Path]:
    """The model of a race after which nothing is trained."""
    frozen = Recipe(image_size=32, freeze_backbone=True)
    options = options_for(candidates, photographs.parent / "solved/model", frozen)
    kept: dict[str, np.ndarray] = {}
    write = write_raced_model
    with pytest.MonkeyPatch.context() as patch:

        def writing(target: Path, *args: object) -> None:
            write(target, *args)  # type: ignore[arg-type]
            kept["probabilities"] = read_race_arrays(target).probabilities
            kept["name"] = np.array(target.name.startswith(UNTRAINED))

        patch.setattr(race_story, "write_raced_model", writing)
        yield run(photographs, options).model
    assert kept["probabilities"].shape == (24, 3)
    assert kept["probabilities"].sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert kept["name"]


def test_without_time_for_an_epoch_the_solved_classifier_is_the_model(solved: Path) -> None:
    assert (solved / "metrics.jsonl").read_text() == ""
    report = (solved / "report.html").read_text()
    assert "No epoch was trained: the model is the solved classifier." in report
    assert "The time was up" not in report
    metrics = json.loads((solved / "evaluation/metrics.json").read_text())
    assert metrics["accuracy"] == 1  # colours are easy


def test_after_a_race_training_is_what_it_is_without_one(photographs: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate"
    initialize(ModelOptions(architecture=TINY, recipe=SMALL), 1, candidate)
    raced = options_for((str(candidate),), tmp_path / "raced")
    plain = replace(raced, minutes=None, candidates=(), architecture=TINY, from_scratch=True)
    plain = replace(plain, output=tmp_path / "plain")
    records = [metrics_of(run(photographs, options).model) for options in (raced, plain)]
    assert records[0] == records[1]


def metrics_of(model: Path) -> list[float]:
    """Return the training and validation losses of all epochs."""
    rows = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    return [row[name] for row in rows for name in ("Train loss", "Valid loss")]


def test_a_model_that_knows_the_images_is_left_out(
    fitted: Path, photographs: Path, candidates: tuple[str, ...], tmp_path: Path
) -> None:
    options = options_for((str(fitted), candidates[0]), tmp_path / "model")
    fitted_again = run(photographs, options)
    rows = {row.name: row for row in record_of(fitted_again.model).candidates}
    assert "it has learned from" in rows[str(fitted)].remark
    assert rows[str(fitted)].accuracy is None


def test_without_any_candidate_there_is_no_race(
    fitted: Path, photographs: Path, tmp_path: Path
) -> None:
    with pytest.raises(ParameterError, match=r"none of them can be taken:\n  .*has learned from"):
        run(photographs, options_for((str(fitted),), tmp_path / "model"))
