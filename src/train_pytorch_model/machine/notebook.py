"""The log of a program that runs in a notebook's kernel: lines, and a bar that is redrawn."""

import html
import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from train_pytorch_model.machine.log_lines import PlainHandler

REFRESHES_PER_SECOND = 4


def is_kernel() -> bool:
    """Return whether this process is a notebook's kernel, rather than a command that one runs."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def kernel_handler(stream: TextIO) -> "NotebookHandler":
    """Return the handler for the notebook whose kernel this process is."""
    return NotebookHandler(stream, importlib.import_module("IPython.display").display)


class NotebookHandler(PlainHandler):
    """Lines, with a progress bar that is redrawn where it is."""

    def __init__(self, stream: TextIO, display: Callable[..., Any]) -> None:
        super().__init__(stream)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "is_progress", False):  # the bar shows it
            super().emit(record)

    @contextmanager
    def live_bar(self, total: int, title: str, done: int) -> Iterator["NotebookBar"]:
        """Show a bar for a pass of `total` steps, `done` of them complete, during a `with`."""
        bar = NotebookBar(total, title, done)
        bar.shown = self._display(bar, display_id=True)
        try:
            yield bar
        finally:
            bar.is_over = True
            bar.shown.update(bar)


@dataclass
class NotebookBar:
    """A bar as a notebook draws it."""

    total: int
    title: str
    done: int
    facts: Sequence[str] = ()
    is_over: bool = False
    shown: Any = None  # what IPython's `display` returned
    drawn_at: float = 0.0

    def count(self, steps: int) -> None:
        """Count more steps as done."""
        self.done += steps
        if time.monotonic() - self.drawn_at > 1 / REFRESHES_PER_SECOND:
            self.drawn_at = time.monotonic()
            self.shown.update(self)

    def show(self, facts: Sequence[str]) -> None:
        """Show facts when the bar is drawn next."""
        self.facts = facts

    def __repr__(self) -> str:
        if self.is_over:
            return ""
        return "  ".join((f"{self.title} {self.done}/{self.total}", *self.facts))

    def _repr_html_(self) -> str:
        if self.is_over:
            return ""
        progress = f'<progress value="{self.done}" max="{self.total}"></progress>'
        return f"{progress} {html.escape(repr(self))}"
