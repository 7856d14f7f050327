"""The settings that make sums the same in each run, and what is refused with them."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.model_directories import HALF
from tests.painting import paint_folders
from tests.trainings import ALONE, TINY

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.machine.threads import Threads
from train_pytorch_model.stories import train as stories_train
from train_pytorch_model.stories.train import dry_run, train
from train_pytorch_model.training.deterministic import (
    FIXED_WORKSPACE,
    WORKSPACE,
    deterministic,
    deterministic_if,
)
from train_pytorch_model.training.fine_tuning import LearningRateFactors
from train_pytorch_model.training.plan import make_plan
from train_pytorch_model.training.plan_text import describe

MEMORY: Any = torch.utils.deterministic


def settings() -> tuple[bool, bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        MEMORY.fill_uninitialized_memory,
    )


@pytest.fixture(autouse=True)
def _no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, "")  # so that it is restored
    monkeypatch.delenv(WORKSPACE)


def test_everything_is_fixed_within_and_as_it_was_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings()
    with deterministic_if(False):
        assert settings() == before
        assert WORKSPACE not in os.environ
    with deterministic_if(True):
        assert settings() == (True, True, False, False)
        assert os.environ[WORKSPACE] == FIXED_WORKSPACE
    assert settings() == before
    assert WORKSPACE not in os.environ
    with pytest.raises(KeyError), deterministic():
        raise KeyError
    assert settings() == before


def test_a_workspace_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with deterministic():
        assert os.environ[WORKSPACE] == ":16:8"


def test_a_workspace_with_which_pytorch_refuses_to_multiply_is_replaced_for_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WORKSPACE, ":4096:2:16:8")
    with deterministic():
        assert os.environ[WORKSPACE] == FIXED_WORKSPACE
    assert os.environ[WORKSPACE] == ":4096:2:16:8"


def test_threads_make_no_room_and_a_number_that_the_user_has_fixed_stays() -> None:
    before = torch.get_num_threads()
    world = replace(ALONE, threads=Threads(1, "other processes use 1.0 of 2 cores"))
    try:
        fixed = world.with_fixed_threads()
        assert fixed.threads == Threads(world.cores, "one for each core", is_fixed=True)
        assert torch.get_num_threads() == world.cores
    finally:
        torch.set_num_threads(before)
    of_user = Threads(7, "as OMP_NUM_THREADS says", is_fixed=True)
    assert replace(ALONE, threads=of_user).with_fixed_threads().threads == of_user


def test_an_operation_that_has_no_fixed_order_is_named() -> None:
    message = "max_unpooling2d_forward_out does not have a deterministic implementation, but you"
    with (
        pytest.raises(ParameterError, match="PyTorch has no max_unpooling2d_forward_out that adds"),
        deterministic(),
    ):
        raise RuntimeError(message)
    with (
        for_command_line(),
        pytest.raises(ParameterError, match=r"^`init-model --deterministic` is not possible"),
        deterministic(),
    ):
        raise RuntimeError(message)
    with pytest.raises(RuntimeError, match=r"^other$"), deterministic():
        raise RuntimeError("other")


@pytest.mark.filterwarnings("ignore")  # MLflow's store, loaded in a thread, warns of itself
def test_a_run_computes_with_the_settings_of_its_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained = tmp_path / "untrained"
    recipe = Recipe(deterministic=True, image_size=32, mean=HALF, std=HALF)
    InitModel(architecture=TINY, output=untrained, recipe=recipe).run()
    training = paint_folders(tmp_path / "training", 2)
    validation = paint_folders(tmp_path / "validation", 2, first=100)
    inputs = open_training_inputs(untrained, training, validation).with_flips(False)
    seen = []

    def look(*_: object) -> None:
        seen.append(settings())

    train(TrainConfig(epochs=1), inputs, tmp_path / "model", ALONE, test=look)
    assert seen == [(True, True, False, False)]
    with monkeypatch.context() as patch:
        patch.setattr(stories_train, "show_plan", look)
        dry_run(TrainConfig(epochs=1), inputs, ALONE)
    assert seen == [(True, True, False, False)] * 2
    assert not torch.are_deterministic_algorithms_enabled()
    lines = describe(make_plan(TrainConfig(epochs=1), inputs, ALONE), LearningRateFactors())
    assert lines["Bits"].startswith("the same in each run with as many processes and threads")
