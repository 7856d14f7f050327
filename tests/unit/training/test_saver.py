"""When checkpoints are written after epochs: rarely if epochs are short, and always after the last
one.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from tests.painting import paint_folders
from tests.trainings import TINY, Training, start_training

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import TrainingInputs, open_training_inputs
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.machine.threads import Threads
from train_pytorch_model.training import saver as saving
from train_pytorch_model.training.checkpoint_files import save_checkpoint
from train_pytorch_model.training.saver import EVERY_S, UPLOADED_EVERY_S, Saver


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> TrainingInputs:
    root = tmp_path_factory.mktemp("inputs")
    recipe = Recipe(image_size=32)
    InitModel(output=root / "untrained", architecture=TINY, recipe=recipe).run()
    images = paint_folders(root / "images", 2)
    return open_training_inputs(root / "untrained", images, images).with_flips(True)


@pytest.fixture(scope="module")
def training(inputs: TrainingInputs) -> Training:
    return start_training(TrainConfig(epochs=9), inputs)


class Clock(NamedTuple):
    now: list[float]

    def monotonic(self) -> float:
        return self.now[0]


@pytest.mark.parametrize(
    ("every_s", "ends", "written"),
    [
        pytest.param(EVERY_S, [5, 29, 30, 59, 61, 90, 95], [30, 61, 95], id="short epochs"),
        pytest.param(EVERY_S, [250, 500, 750], [250, 500, 750], id="long epochs"),
        pytest.param(UPLOADED_EVERY_S, [30, 899, 900, 1000], [900, 1000], id="an uploaded folder"),
        pytest.param(0.0, [1, 2, 3], [1, 2, 3], id="every step is written"),
    ],
)
def test_epochs_are_written_some_time_apart_and_the_last_one_always_is(
    tmp_path: Path,
    training: Training,
    monkeypatch: pytest.MonkeyPatch,
    every_s: float,
    ends: list[int],
    written: list[int],
) -> None:
    clock = Clock([0.0])
    monkeypatch.setattr(saving, "time", clock)
    state, folder = training.state, tmp_path / "checkpoints"
    saved = []
    with Saver(
        folder, every_s, training.engine, state, StopRequests(), partial(save_checkpoint, folder)
    ) as saver:
        for end in ends:
            clock.now[0] = end
            state.progress.epoch = 10 if end == ends[-1] else 2
            before = set(folder.glob("*"))
            saver.after_epoch()
            saver._finish_writing(wait=True)
            if set(folder.glob("*")) != before:
                saved.append(end)
    assert saved == written


def test_a_run_goes_on_with_the_threads_with_which_it_was_stopped(
    tmp_path: Path,
    inputs: TrainingInputs,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As it began beside a busy process, and the machine is quiet now."""
    caplog.set_level("INFO")
    set_threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", set_threads.append)
    monkeypatch.setattr("train_pytorch_model.machine.cores.usable_cores", lambda: 4)
    begun = World(0, 1, 0, 1, torch.device("cpu"), threads=Threads(4, "one for each core"))
    for count in (3, 4):
        training = start_training(TrainConfig(epochs=9), inputs, begun)
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        folder = tmp_path / f"checkpoints of {count} threads"
        save = partial(save_checkpoint, folder)
        with Saver(folder, EVERY_S, training.engine, training.state, StopRequests(), save) as saver:
            saver.after_epoch()
            saver.write(wait=True)
            assert saver.resume()
    assert set_threads == [3, 4]
    assert caplog.messages == ["It goes on with 3 threads, as when it was stopped."]
