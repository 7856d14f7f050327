"""The script that draws the README's terminal picture, run on real output of Rich."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests import terminal_picture

PROGRAM = """
from train_pytorch_model.machine.console import logger, paragraph, progress_bar, set_up, summary
set_up()
paragraph("a plan", "Model")
for epoch in (1, 2):
    with progress_bar(2, f"Epoch {epoch}/2") as bar:
        bar.advance()
        bar.show(1, f"loss {epoch}.5", "data wait 3%")
    summary(f"Epoch {epoch}/2", "best")
logger.info("the end")
"""


def test_the_picture_is_the_last_frame_with_a_progress_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    picture = tmp_path / "terminal.svg"
    command = [sys.executable, str(tmp_path / "program.py")]
    monkeypatch.setattr("sys.argv", ["", str(picture), "--", *command])
    terminal_picture.main()
    shown = "".join(ElementTree.parse(picture).getroot().itertext()).replace("\xa0", " ")
    for text in ("Model       a plan", "Epoch 1/2: best", "Epoch 2/2 ", "loss 2.5  data wait 3%"):
        assert text in shown
    for text in ("the end", "loss 1.5", "Epoch 2/2: best"):
        assert text not in shown
