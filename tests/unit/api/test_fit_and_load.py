"""`fit` and `load` in Python take what the command line takes."""

import inspect
import logging
import sys
import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.model_directories import HALF, write_model
from tests.painting import paint
from tests.weights_files import write_weights

from train_pytorch_model import fit, load
from train_pytorch_model.commands.fit import Fit
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import (
    InvalidDatasetError,
    InvalidModelDirectoryError,
    ParameterError,
)
from train_pytorch_model.quality.suspects import Suspect
from train_pytorch_model.stories import fit as story
from train_pytorch_model.stories.fit import Fitted


def test_every_option_of_the_command_line_is_one_in_python() -> None:
    options = {option.name for kind in (Fit, Recipe, TrainConfig) for option in fields(kind)}
    signature = inspect.signature(fit)
    assert {*signature.parameters} == options - {"parameters", "recipe"}
    assert list(signature.parameters)[:2] == ["folder", "output"]
    assert signature.parameters["patience"].default == TrainConfig().patience
    assert signature.parameters["patience"].annotation is int


def test_a_notebook_shows_no_warning_about_widgets_that_are_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widgets = "IProgress not found. Please update jupyter and ipywidgets."

    def warn_and_fail(*_: object) -> Any:
        warnings.warn(widgets, stacklevel=1)
        raise InvalidDatasetError("Dataset", "it is empty.")

    monkeypatch.setattr(story, "open_parts", warn_and_fail)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(InvalidDatasetError, match="it is empty"):
            fit(tmp_path, tmp_path.parent / "model")
        assert not shown
        warnings.warn(widgets, stacklevel=1)  # of the caller
    assert len(shown) == 1


def test_a_program_keeps_its_logging(tmp_path: Path) -> None:
    logger = logging.getLogger("train_pytorch_model")
    handler = logging.NullHandler()
    logger.addHandler(handler)
    before = (logger.level, logger.propagate)
    with pytest.raises(InvalidDatasetError, match="there is no such directory"):
        fit(tmp_path / "no")
    assert (logger.level, logger.propagate) == before
    assert logger.handlers == [handler]


def test_a_designer_model_is_loaded_with_its_image_size(tmp_path: Path) -> None:
    root = write_model(tmp_path / "model", Recipe(mean=HALF, std=HALF), categories=("x", "y"))
    write_weights(root, "resnet18", 2)
    assert load(root, image_size=400).categories == ("x", "y")
    with pytest.raises(ParameterError, match=r"does not record its image size"):
        load(root)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"architecture": "resnet99"}, "`architecture` resnet99 is not known."),
        (
            {"memory_efficient": True},
            "`memory_efficient` is an option of DenseNet, and `architecture` is",
        ),
        (
            {"pretrained": True, "weights": "DEFAULT"},
            "`pretrained`, `weights` and `weights_file` are",
        ),
        (
            {"architecture": "timm:a", "weights": "DEFAULT"},
            "`weights` DEFAULT is for torchvision's",
        ),
        (
            {"weights_file": "nowhere"},
            "`weights_file` nowhere cannot be used: there is no such file.",
        ),
    ],
)
def test_options_that_do_not_go_together_are_named_as_in_python(options: Any, start: str) -> None:
    with for_command_line(False), pytest.raises(ParameterError) as raised:
        fit("images", **options)
    assert str(raised.value).startswith(start)


@pytest.fixture
def in_python() -> Iterator[None]:
    with for_command_line(False):
        yield


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A small trained model."""
    recipe = Recipe(image_size=16, mean=HALF, std=HALF)
    architecture = "mobilenet_v3_small"
    root = write_model(tmp_path / "model", recipe, False, ("x", "y"), architecture)
    write_weights(root, architecture, 2)
    return root


@pytest.mark.usefixtures("in_python")
def test_parameters_of_another_type_are_refused_before_anything_is_opened(tmp_path: Path) -> None:
    for options in ({"epochs": "5"}, {"epochs": True}, {"framing": "stretch"}, {"output": 5}):
        with pytest.raises(ParameterError, match=f"`{next(iter(options))}` should be"):
            fit(tmp_path / "nowhere", **options)
    with pytest.raises(ParameterError, match="`folder` should be a path; it is None"):
        fit(None)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="`image_size` should be an integer; it is '96'"):
        load(tmp_path, "96")  # type: ignore[arg-type]
    with pytest.raises(InvalidDatasetError):
        fit(tmp_path / "nowhere", epochs=np.int64(2))


@pytest.mark.usefixtures("in_python")
def test_a_table_of_predictions_has_a_row_for_each_image(trained: Path) -> None:
    pixels = np.asarray(paint("red", 1))
    table = load(trained).predict([pixels, None, pixels / 255])  # type: ignore[list-item]
    assert list(table["image"]) == ["0", "1", "2"]
    assert list(table["label"].isna()) == [False, True, False]
    assert table["probability"][0] == table["probability"][2]
    assert table["error"][1].startswith("element 1 of `images` is None")


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_folders_are_predicted_at_any_depth_whatever_their_names(
    trained: Path, tmp_path: Path
) -> None:
    for name in ("x/1.png", "x/garden/may/2.png", "y/yard/caf\udce9.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        paint("red", 1).save(path)
    table = load(trained).predict(tmp_path / "images")
    names = [name.rpartition("/")[2] for name in table["image"]]
    assert names == ["1.png", "2.png", r"caf\udce9.png"]
    assert "error" not in table


def test_a_model_predicts_where_its_directory_was_moved_or_trained_anew(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    model = load("model")
    first = model.predict(np.asarray(paint("red", 1)))
    monkeypatch.chdir("/")
    assert model.root == trained
    trained.rename(trained.parent / "moved")
    assert model.predict(np.asarray(paint("red", 1))).equals(first)


def test_the_callers_random_numbers_are_not_moved(trained: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    load(trained).predict(np.asarray(paint("red", 1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_tells_what_training_wrote(trained: Path) -> None:
    model = load(trained)
    assert (model.evaluation, model.accuracy, model.report) == (None, None, None)
    assert list(model.suspects.columns) == [field.name for field in fields(Suspect)]
    assert len(model.suspects) == 0
    (trained / "suspects.csv").write_text(
        "file,given,proposed,wrong,dataset,original\nNA/1.jpg,NA,007,0.5,training,\n"
    )
    (row,) = model.suspects.itertuples(index=False)
    assert tuple(row) == ("NA/1.jpg", "NA", "007", 0.5, "training", "")
    (trained / "evaluation").mkdir()
    (trained / "evaluation/_meta.yaml").touch()
    (trained / "evaluation/evaluation.html").write_text("<p>a & b")
    (trained / "evaluation/mistakes.csv").write_text(
        "file_name,category,predicted,confidence,category_probability,original\n"
    )
    (trained / "evaluation/metrics.json").write_text(
        '{"images": 9, "accuracy": 0.5, "per_class": [{"category": "x", "precision": null}]}'
    )
    assert model.accuracy == 0.5
    assert repr(model.evaluation) == "Evaluated(9 images: accuracy 50.0%)"
    assert model.evaluation is not None
    assert list(model.evaluation.per_class["category"]) == ["x"]
    assert "&lt;p&gt;a &amp; b" in model.evaluation._repr_html_()


def test_what_a_moved_model_cannot_tell_is_said(trained: Path) -> None:
    model = load(trained)
    trained.rename(trained.parent / "moved")
    for name in ("evaluation", "accuracy", "suspects", "report"):
        with pytest.raises(InvalidModelDirectoryError, match="`load` it where it is now"):
            getattr(model, name)


def test_the_next_steps_in_python_are_python(
    trained: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "train_pytorch_model.api.fit.run_fit", lambda *_, **__: Fitted(trained, None)
    )
    with caplog.at_level(logging.INFO, "train_pytorch_model"):
        fit("photographs")
    assert caplog.messages == [
        f"The model is in {trained}. Next, after `model = fit(…)`:",
        '  model.review("FOLDER")  # the labels that the model doubts: a page to correct them',
        "  model.report            # how it was trained, and what to try next",
        '  model.predict("FOLDER") # new images',
        f"Later: `model = load({str(trained)!r})`",
    ]


@pytest.mark.usefixtures("in_python")
def test_an_archive_to_evaluate_on_is_answered_with_what_python_can_do(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "images.zip").write_bytes(b"PK")
    with pytest.raises(InvalidDatasetError, match="Unpack an archive, and name its folder"):
        load(trained).evaluate(tmp_path / "images.zip")
