"""What a program writes: the standard `logging`, and a progress bar.

Everybody writes to `logger`; who started the story decides who listens: a command in `set_up`, a
Python program by its own logging, or else by `shown_on_console`. A line of `logger.info` is shown
as it is, so that a command in it can be copied; `paragraph` is wrapped, and `summary` is cut to the
terminal.
"""

import io
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from train_pytorch_model.config.wording import visible_lines
from train_pytorch_model.machine import notebook
from train_pytorch_model.machine.log_lines import FileHandler, PlainHandler
from train_pytorch_model.machine.notebook import NotebookBar, NotebookHandler
from train_pytorch_model.machine.terminal import INDENT, LiveBar, TerminalHandler, wrap

logger = logging.getLogger("train_pytorch_model")


def set_up(is_main: bool = True, quiet: bool = False) -> None:
    """Show the log on this process's console: nothing unless `is_main`, warnings only if `quiet`.

    It is the command line's process: nobody else listens from now on.
    """
    logger.handlers = [_console_handler(is_main, quiet)]
    logger.setLevel(logging.INFO)
    logger.propagate = False  # libraries configure the root logger


@contextmanager
def shown_on_console(is_main: bool = True, quiet: bool = False) -> Iterator[None]:
    """Show the log as `set_up` does, but for a `with`, and unless the program has configured it.

    A notebook always shows it, as its platform may have configured the root logger.
    """
    is_notebook = notebook.is_kernel()
    if logger.handlers or (logger.hasHandlers() and not is_notebook):
        yield
        return
    handler = _console_handler(is_main, quiet)
    level = logger.level
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = not is_notebook
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def _console_handler(is_main: bool, quiet: bool) -> logging.Handler:
    """Return who shows the log on the console that this process has."""
    stream = sys.stderr if quiet else sys.stdout
    if not is_main or stream is None:  # it was closed when the program started
        return logging.NullHandler()
    if quiet:
        handler = PlainHandler(stream)
        handler.setLevel(logging.WARNING)
        return handler
    if notebook.is_kernel():
        return notebook.kernel_handler(stream)
    if stream.isatty() and not _keeps_every_line():
        return TerminalHandler()
    return PlainHandler(stream)


def _keeps_every_line() -> bool:
    """Return whether the terminal is a dumb one, or that of a command in a notebook."""
    in_notebook = "JPY_PARENT_PID" in os.environ or "inline" in os.environ.get("MPLBACKEND", "")
    return in_notebook or os.environ.get("TERM") in ("dumb", "unknown")


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Write everything to a file as well, with the time, and the error that ends the `with`."""
    handler = FileHandler(path)
    logger.addHandler(handler)
    try:
        yield
    except BaseException as error:  # which only the main process shows on its console
        handler.write(getattr(error, "message", f"{type(error).__name__}: {error}"))
        raise
    finally:
        logger.removeHandler(handler)


def paragraph(text: str, title: str = "") -> None:
    """Log text that a terminal wraps to its width; a title gets its own column."""
    logger.info(text, extra={"wraps": True, "title": title})


def summary(title: str, *facts: str) -> None:
    """Log a line of facts, the most important first: a terminal omits what does not fit."""
    text = f"{title}: {', '.join(facts)}"
    logger.info(text, extra={"wraps": True, "title": "", "facts": (title, facts)})


@dataclass(frozen=True)
class Bar:
    """Progress through the steps of one pass."""

    total: int
    title: str
    lines_every: int
    live: LiveBar | NotebookBar | None

    def advance(self, steps: int = 1) -> None:
        """Count more steps as done."""
        if self.live:
            self.live.count(steps)

    def show(self, step: int, *facts: str) -> None:
        """Show facts after a step, counted from 1; the most important first: not all may fit."""
        if self.live:
            self.live.show(facts)
        if step % self.lines_every == 0:
            self.log(step, *facts)

    def log(self, step: int, *facts: str) -> None:
        """Write a line about a step, counted from 1, to a log; the bar of a terminal shows it."""
        counts = f"{self.title} {step:{len(str(self.total))}}/{self.total}"
        logger.info("  ".join((counts, *facts)), extra={"is_progress": True})


@contextmanager
def progress_bar(total: int, title: str, done: int = 0, lines_every: int = 1) -> Iterator[Bar]:
    """Show a bar for a pass of `total` steps, `done` of them complete, during a `with`.

    A log has a line every `lines_every`.
    """
    kinds = (TerminalHandler, NotebookHandler)
    able = next((handler for handler in logger.handlers if isinstance(handler, kinds)), None)
    with able.live_bar(total, title, done) if able else nullcontext() as live:
        yield Bar(total, title, lines_every, live)


def erase_bar() -> None:
    """Erase the progress bar before the process is ended, without waiting for another thread."""
    for handler in logger.handlers:
        if isinstance(handler, TerminalHandler):
            handler.erase_bar()


def write_what_the_console_can() -> None:
    """Replace characters that the console cannot encode, instead of raising an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # standard error does so already
        sys.stdout.reconfigure(errors="backslashreplace")


def fit_to_stderr(text: str) -> str:
    """Return the text as it is written to standard error: in lines that fit if it is a terminal.

    Names in it move no cursor and set no colours.
    """
    text = visible_lines(text)
    if not sys.stderr or not sys.stderr.isatty():
        return text
    return wrap(text, shutil.get_terminal_size().columns, INDENT)
