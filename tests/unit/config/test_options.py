"""Options as fields of dataclasses."""

from dataclasses import replace
from pathlib import Path

import tyro

from train_pytorch_model.commands.fit import Fit
from train_pytorch_model.commands.score import Score
from train_pytorch_model.commands.train import Train
from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.options import arguments_of, assemble, options_in
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig


def test_the_options_of_a_command_become_those_of_its_workers() -> None:
    folder = Path("a folder")
    score = Score(trained_model=folder, dataset=folder, scored_dataset=folder, top_k=3, quiet=True)
    train = Train(
        untrained_model=folder,
        training_dataset=folder,
        validation_dataset=folder,
        trained_model=folder,
        parameters=TrainConfig(warmup_epochs=2, learning_rate=1e-7, random_seed=-3),
        fresh=True,
    )
    for command in (score, train):
        assert tyro.cli(type(command), args=list(arguments_of(command))) == command
    assert list(arguments_of(train.parameters)) == [
        *("--warmup-step-number", "2", "--learning-rate", "1e-07", "--random-seed", "-3")
    ]


def test_the_options_of_fit_become_those_of_its_workers() -> None:
    recipe = Recipe(
        image_size=(96, 128),
        training_size=64,
        horizontal_flip=True,
        label_smoothing=0.0,
        balance_classes=True,
        background=(0, 1, 2),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
    )
    options = FitOptions(
        architecture="mobilenet_v3_small",
        weights_file=Path("a file"),
        recipe=recipe,
        output=Path("a model"),
        from_scratch=True,
        parameters=TrainConfig(epochs=2),
        quiet=True,
    )
    for horizontal_flip in (True, False, "auto"):
        chosen = replace(options, recipe=replace(recipe, horizontal_flip=horizontal_flip))
        command = Fit(folder=Path("photographs"), **vars(chosen))
        arguments = list(arguments_of(command, FitOptions))
        assert arguments == list(arguments_of(chosen))
        assert tyro.cli(Fit, args=["photographs", *arguments]) == command


def test_options_are_those_of_the_groups_as_well() -> None:
    names = [option.name for option in options_in(FitOptions)]
    assert {"architecture", "cutmix", "epochs", "output", "quiet"} <= {*names}
    assert not {"recipe", "parameters"} & {*names}
    assembled = assemble(FitOptions, {"cutmix": 0.5, "epochs": 2, "quiet": True})
    assert assembled == FitOptions(
        recipe=Recipe(cutmix=0.5), parameters=TrainConfig(epochs=2), quiet=True
    )
