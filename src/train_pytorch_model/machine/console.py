"""What a program writes: the standard `logging` on a terminal, a pipe or a file, and a progress
bar.

Everybody writes to `logger`; the command decides in `set_up` who listens. A line of `logger.info`
is shown as it is, so that a command in it can be copied; `paragraph` is wrapped, and `summary` is
cut to the terminal.
"""

import html
import importlib
import io
import logging
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, TextIO

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.table import Column
from rich.text import Text

TITLE_WIDTH = 12  # columns
MIN_WIDTH = 40  # columns; on a narrower terminal, text is wrapped to this width
USUAL_WIDTH = 80  # columns; a narrower terminal shows as many facts of an epoch, over two lines
MIN_BAR = 8  # columns of the bar itself; facts that do not fit beside it go below
BELOW = "  "  # indents that line
WHOLE = re.compile(
    r"`[^`]+`|\d \S|\bx \d"
)  # a command, a number with its unit, a product: not broken
# Of an ANSI terminal: clears the line; goes one up, and clears that; shows the cursor, which a bar
# hides.
CLEAR_LINE, LINE_ABOVE, SHOW_CURSOR = b"\r\x1b[2K", b"\x1b[1A\x1b[2K", b"\x1b[?25h"
REFRESHES_PER_SECOND = 4  # smooth enough; each takes the GIL, which the decoding threads need too

logger = logging.getLogger("train_pytorch_model")
logger.setLevel(logging.INFO)


def set_up(is_main: bool = True, quiet: bool = False) -> None:
    """Show the log on this process's console: nothing unless `is_main`, warnings only if `quiet`."""
    handler: logging.Handler = logging.NullHandler()
    stream = sys.stderr if quiet else sys.stdout
    if is_main and stream:  # None if it was closed when the program started
        handler = _PlainHandler(stream)
        # The terminal of a command in a notebook keeps every line; a dumb one cannot move the
        # cursor.
        in_notebook = "JPY_PARENT_PID" in os.environ or "inline" in os.environ.get("MPLBACKEND", "")
        is_dumb = in_notebook or os.environ.get("TERM") in ("dumb", "unknown")
        ipython = sys.modules.get("IPython")
        if not quiet and ipython and hasattr(ipython.get_ipython(), "kernel"):
            handler = NotebookHandler(stream, importlib.import_module("IPython.display").display)
        elif not quiet and stream.isatty() and not is_dumb:
            handler = TerminalHandler()
    handler.setLevel(logging.WARNING if quiet else logging.NOTSET)
    logger.handlers = [handler]
    logger.propagate = False  # libraries configure the root logger


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Write everything to a file as well, with the time, and the error that ends the `with`."""
    handler = _FileHandler(path)
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
    logger.info(
        f"{title}: {', '.join(facts)}", extra={"wraps": True, "title": "", "facts": (title, facts)}
    )


@dataclass(frozen=True)
class Bar:
    """Progress through the steps of one pass."""

    total: int
    title: str
    lines_every: int
    live: "_LiveBar | NotebookBar | None"

    def advance(self, steps: int = 1) -> None:
        """Count more steps as done."""
        if self.live:
            self.live.count(steps)

    def show(self, step: int, *facts: str) -> None:
        """Show facts after a step, counted from 1; the most important first, in case not all fit."""
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
    """A bar for a pass of `total` steps, `done` of them complete; a log has a line every
    `lines_every`.
    """
    kinds = TerminalHandler, NotebookHandler
    able = next((each for each in logger.handlers if isinstance(each, kinds)), None)
    with able.live_bar(total, title, done) if able else nullcontext() as live:
        yield Bar(total, title, lines_every, live)


def write_what_the_console_can() -> None:
    """Replace characters that the console cannot encode, instead of raising an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # standard error does so already
        sys.stdout.reconfigure(errors="backslashreplace")


def erase_bar() -> None:
    """Erase the progress bar before the process is ended, without a lock that another thread may
    hold.
    """
    for handler in logger.handlers:
        if isinstance(handler, TerminalHandler) and handler.bar and os.name == "posix":
            above = LINE_ABOVE if handler.bar.below else b""
            with suppress(OSError):
                terminal = os.dup(1)
                os.dup2(
                    os.open(os.devnull, os.O_WRONLY), 1
                )  # the thread that draws it must not do so again
                os.write(terminal, CLEAR_LINE + above + SHOW_CURSOR)


class TerminalHandler(logging.Handler):
    """Lines, with a live progress bar below them."""

    bar: "_LiveBar | None" = None

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(highlight=False)

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_progress", False):  # the bar shows it
            return
        text, indent = _text_of(record), 2
        if facts := getattr(record, "facts", None):
            room = max(self._console.width, USUAL_WIDTH) - len(f"{facts[0]}: ")
            text = f"{facts[0]}: {', '.join(_fit(facts[1], room, ', '))}"
        elif getattr(record, "title", ""):
            indent = TITLE_WIDTH
        is_warning = record.levelno >= logging.WARNING
        if is_warning or getattr(record, "wraps", False):
            text = _wrap(text, self._console.width, indent)
        self._console.print(
            text, markup=False, soft_wrap=True, style="yellow" if is_warning else None
        )

    @contextmanager
    def live_bar(self, total: int, title: str, done: int) -> Iterator["_LiveBar"]:
        with _LiveBar(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(bar_width=None),
            rich_progress.MofNCompleteColumn(),
            _Facts(table_column=Column(no_wrap=True)),
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            expand=True,
        ) as bar:
            bar.add_task(title, total=total, completed=done, facts="")
            self.bar = bar
            try:
                yield bar
            finally:
                self.bar = None


class _PlainHandler(logging.StreamHandler):  # type: ignore[type-arg]  # of text
    """Lines, for pipes and job logs."""

    def format(self, record: logging.LogRecord) -> str:
        return _text_of(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        raise  # noqa: PLE0704, logging calls this while it handles the error


class NotebookHandler(_PlainHandler):
    """Lines, with a progress bar that is redrawn where it is, for a program in a notebook's kernel."""

    def __init__(self, stream: TextIO, display: Callable[..., Any]) -> None:
        super().__init__(stream)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "is_progress", False):  # the bar shows it
            super().emit(record)

    @contextmanager
    def live_bar(self, total: int, title: str, done: int) -> Iterator["NotebookBar"]:
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
        self.done += steps
        if time.monotonic() - self.drawn_at > 1 / REFRESHES_PER_SECOND:
            self.drawn_at = time.monotonic()
            self.shown.update(self)

    def show(self, facts: Sequence[str]) -> None:
        self.facts = facts

    def __repr__(self) -> str:
        return (
            ""
            if self.is_over
            else "  ".join((f"{self.title} {self.done}/{self.total}", *self.facts))
        )

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{self.total}"></progress> {html.escape(repr(self))}'
        return "" if self.is_over else bar


class _FileHandler(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        self.write(_text_of(record))

    def write(self, text: str) -> None:
        with suppress(OSError):  # a full disk must not end the run
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")


class _Facts(rich_progress.TimeRemainingColumn):
    """The facts of a pass; the time left, if it shows none."""

    max_refresh = 0.0  # seconds for which a rendering is kept

    def render(self, task: rich_progress.Task) -> Text:
        return (
            Text(task.fields["facts"])
            if task.fields["facts"]
            else Text("ETA ") + super().render(task)
        )


class _LiveBar(rich_progress.Progress):
    """A progress bar with a line of facts below it, for those that do not fit beside it."""

    below = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below, no_wrap=True, overflow="crop")

    def count(self, steps: int) -> None:
        self.advance(self.task_ids[0], steps)

    def show(self, facts: Sequence[str]) -> None:
        task, width = self.tasks[0], self.console.width
        counts = f"{task.description}  {task.total}/{task.total} "
        beside = _fit(facts, width - len(counts) - MIN_BAR)
        below = _fit(facts[len(beside) :], width - len(BELOW))
        self.below = BELOW + "  ".join(below) if below else ""
        self.update(task.id, facts="  ".join(beside), refresh=True)


def fit_to_stderr(text: str) -> str:
    """Return the text as it is written to standard error: a terminal gets lines that fit its width."""
    is_terminal = sys.stderr and sys.stderr.isatty()
    return _wrap(text, shutil.get_terminal_size().columns, 2) if is_terminal else text


def _wrap(text: str, width: int, indent: int) -> str:
    """Break lines between words, not inside of a command or between a number and its unit."""
    wrapper = textwrap.TextWrapper(
        max(width, MIN_WIDTH),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = [WHOLE.sub(lambda part: part[0].replace(" ", "\0"), line) for line in text.split("\n")]
    return "\n".join(map(wrapper.fill, lines)).replace("\0", " ")


def _text_of(record: logging.LogRecord) -> str:
    """The text of a record, unwrapped."""
    text, title = record.getMessage(), getattr(record, "title", "")
    if record.levelno >= logging.WARNING:
        return f"Warning: {text}"
    return f"{title:{TITLE_WIDTH}}{text}" if title else text


def _fit(facts: Sequence[str], room: int, between: str = "  ") -> Sequence[str]:
    """The first facts, as many as fit into `room` columns."""
    ends = accumulate(len(fact) + len(between) for fact in facts)
    return facts[: sum(end - len(between) <= room for end in ends)]
