"""The options of `fit` in Python are those of its command line."""

from dataclasses import fields

from train_pytorch_model.api.fitting import FitOptions
from train_pytorch_model.commands.fit import Fit
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.recipe import Recipe


def test_every_option_of_the_command_line_is_one_in_python() -> None:
    groups = {"parameters", "recipe", "folder", "output"}
    options = {option.name for kind in (Fit, Recipe, TrainConfig) for option in fields(kind)} - groups
    assert set(FitOptions.__annotations__) == options
