"""When checkpoints are written after epochs: rarely if epochs are short, and always after the last one."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import SGD

from train_pytorch_model.distributed.world import World
from train_pytorch_model.loop import checkpointing
from train_pytorch_model.loop.checkpointing import EVERY_S, UPLOADED_EVERY_S, Checkpointer
from train_pytorch_model.loop.train_state import TrainState
from train_pytorch_model.machine.stop_requests import StopRequests

CPU = torch.device("cpu")
ALONE = World(0, 1, 0, 1, CPU)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_s: float, ends: list[int], written: list[int]
) -> None:
    clock = Clock([0.0])
    monkeypatch.setattr(checkpointing, "time", clock)
    network = nn.Linear(2, 2)
    optimizer = SGD(network.parameters(), lr=0.1, momentum=0.9)
    state = TrainState(network, optimizer, GradScaler("cpu", enabled=False), patience=3, device=CPU)
    saved = []
    with Checkpointer(tmp_path, every_s, {}, state, ALONE, StopRequests()) as checkpointer:
        for end in ends:
            clock.now[0] = end
            checkpointer.keep()
            before = set(tmp_path.iterdir())
            checkpointer.write_epoch(is_last=end == ends[-1])
            checkpointer._finish_writing(wait=True)
            if set(tmp_path.iterdir()) != before:
                saved.append(end)
    assert saved == written
