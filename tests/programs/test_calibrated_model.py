"""The temperature of a published model."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.painting import paint_folders
from tests.programs.program import assert_refused, run_program, train_arguments
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.image_classifier.weights import read_state_dict
from train_pytorch_model.publishing.run import Run
from train_pytorch_model.stories import train
from train_pytorch_model.training.state import State


def test_the_last_layer_is_divided_by_the_temperature_at_publication_only(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = tmp_path / "many"
    paint_folders(many / "validation", 8, first=100)
    output = tmp_path / "trained"
    arguments = train_arguments(
        many, untrained, output, "--epochs", "2", training=folders / "training"
    )
    best: dict[str, Tensor] = {}

    def refuse(_: Run, state: State, *__: object) -> None:
        best.update(state.best.weights)
        raise OutputDirectoryError("the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(train, "publish", refuse)
        assert_refused(run_program(*arguments), 4, "TrainingError: The model is trained, but")
    ended = run_program(*arguments)  # validates the best epoch again
    assert ended.status == 0, ended.stderr
    found = re.search(r"calibrated by a temperature of ([\d.]+)", ended.stdout)
    assert found is not None
    assert found[0] in (output / "report.html").read_text(encoding="utf-8")
    published = read_state_dict(output / "model", 1 << 30)
    assert list(published) == list(best)
    for name, weight in best.items():
        if name.startswith("fc."):
            ratio = weight[published[name] != 0] / published[name][published[name] != 0]
            torch.testing.assert_close(
                ratio, torch.full_like(ratio, float(found[1])), atol=6e-4, rtol=0
            )
        else:
            assert torch.equal(published[name], weight)
    uninterrupted = [str(tmp_path / "again") if text == str(output) else text for text in arguments]
    assert run_program(*uninterrupted).status == 0
    assert (tmp_path / "again" / "model").read_bytes() == (output / "model").read_bytes()
