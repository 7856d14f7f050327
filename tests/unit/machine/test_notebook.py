"""The log of a program in a notebook's kernel."""

import io
import logging
import sys
from types import SimpleNamespace

import pytest

from train_pytorch_model.machine.console import logger, progress_bar, shown_on_console
from train_pytorch_model.machine.notebook import NotebookBar, NotebookHandler


class Shown:
    """Stands for what IPython's `display` does: keeps what a notebook would draw."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.lines: list[str] = []

    def __call__(self, bar: NotebookBar, display_id: bool) -> "Shown":
        assert display_id
        self.update(bar)
        return self

    def update(self, bar: NotebookBar) -> None:
        self.pages.append(bar._repr_html_())
        self.lines.append(repr(bar))


def test_a_notebook_draws_one_bar_again_and_lines_for_the_rest() -> None:
    stream, shown = io.StringIO(), Shown()
    logger.addHandler(NotebookHandler(stream, shown))
    with progress_bar(3, "Epoch 1/5") as bar:
        bar.show(1, "loss <1>")
        bar.advance(2)
    logger.info("done")
    assert stream.getvalue() == "done\n"
    assert shown.pages == [
        '<progress value="0" max="3"></progress> Epoch 1/5 0/3',
        '<progress value="2" max="3"></progress> Epoch 1/5 2/3  loss &lt;1&gt;',
        "",
    ]
    assert shown.lines == [
        "Epoch 1/5 0/3",
        "Epoch 1/5 2/3  loss <1>",
        "",
    ]  # where HTML is not drawn


def test_a_notebook_shows_the_log_though_its_platform_has_configured_the_root_logger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = SimpleNamespace(kernel=None)
    display = SimpleNamespace(display=Shown())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    platform = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(platform)])
    with shown_on_console(), progress_bar(3, "Epoch 1/5") as bar:
        logger.info("a line")
        bar.show(1, "loss 1")
    assert capsys.readouterr().out == "a line\n"
    assert platform.getvalue() == ""
    assert display.display.pages
    assert (logger.handlers, logger.propagate) == ([], True)
