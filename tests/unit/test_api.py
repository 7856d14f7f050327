"""`fit` and `load` in Python take what the command line takes."""

import inspect
import logging
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
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.stories import fit as story


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
