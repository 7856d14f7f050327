"""The log on a terminal: lines that fit its width, with a live progress bar below them."""

import logging
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.table import Column
from rich.text import Text

from train_pytorch_model.machine.log_lines import TITLE_WIDTH, text_of

MIN_WIDTH = 40  # columns; on a narrower terminal, text is wrapped to this width
USUAL_WIDTH = 80  # columns; a narrower terminal shows as many facts of an epoch, over two lines
MIN_BAR = 8  # columns of the bar itself; facts that do not fit beside it go below
BELOW = "  "  # indents that line
INDENT = 2  # columns, of the lines into which a text without a title is broken
REFRESHES_PER_SECOND = 4  # smooth enough; each takes the GIL, which the decoding threads need too

# A command, a number with its unit, a product: not broken.
WHOLE = re.compile(r"`[^`]+`|\d \S|\bx \d")

# Of an ANSI terminal.
CLEAR_LINE = b"\r\x1b[2K"
CLEAR_LINE_ABOVE = b"\x1b[1A\x1b[2K"
SHOW_CURSOR = b"\x1b[?25h"  # which a bar hides


class TerminalHandler(logging.Handler):
    """Lines, with a live progress bar below them."""

    _bar: "LiveBar | None" = None

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(highlight=False)

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_progress", False):  # the bar shows it
            return
        is_warning = record.levelno >= logging.WARNING
        self._console.print(
            self._fitted(record, is_warning),
            markup=False,
            soft_wrap=True,
            style="yellow" if is_warning else None,
        )

    def _fitted(self, record: logging.LogRecord, is_warning: bool) -> str:
        """Return the text of a record in lines that fit, if it may be broken."""
        text = text_of(record)
        indent = INDENT
        facts = getattr(record, "facts", None)
        if facts:
            start = f"{facts[0]}: "
            room = max(self._console.width, USUAL_WIDTH) - len(start)
            text = start + ", ".join(_fit(facts[1], room, ", "))
        elif getattr(record, "title", ""):
            indent = TITLE_WIDTH
        if is_warning or getattr(record, "wraps", False):
            return wrap(text, self._console.width, indent)
        return text

    @contextmanager
    def live_bar(self, total: int, title: str, done: int) -> Iterator["LiveBar"]:
        """Show a bar for a pass of `total` steps, `done` of them complete, during a `with`."""
        with LiveBar(
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
            self._bar = bar
            try:
                yield bar
            finally:
                self._bar = None

    def erase_bar(self) -> None:
        """Erase the bar for good, without a lock that another thread may hold."""
        if self._bar is None or os.name != "posix":
            return
        above = CLEAR_LINE_ABOVE if self._bar.below else b""
        with suppress(OSError):
            terminal = os.dup(1)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)  # the thread that draws it must not do so again
            os.write(terminal, CLEAR_LINE + above + SHOW_CURSOR)


class _Facts(rich_progress.TimeRemainingColumn):
    """The facts of a pass; the time left, if it shows none."""

    max_refresh = 0.0  # seconds for which a rendering is kept

    def render(self, task: rich_progress.Task) -> Text:
        facts = task.fields["facts"]
        return Text(facts) if facts else Text("ETA ") + super().render(task)


class LiveBar(rich_progress.Progress):
    """A progress bar with a line of facts below it, for those that do not fit beside it."""

    below = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below, no_wrap=True, overflow="crop")

    def count(self, steps: int) -> None:
        """Count more steps as done."""
        self.advance(self.task_ids[0], steps)

    def show(self, facts: Sequence[str]) -> None:
        """Show facts, the most important first: beside the bar, below it, or not at all."""
        task = self.tasks[0]
        width = self.console.width
        counts = f"{task.description}  {task.total}/{task.total} "
        beside = _fit(facts, width - len(counts) - MIN_BAR)
        below = _fit(facts[len(beside) :], width - len(BELOW))
        self.below = BELOW + "  ".join(below) if below else ""
        self.update(task.id, facts="  ".join(beside), refresh=True)


def wrap(text: str, width: int, indent: int) -> str:
    """Break lines between words, not inside of a command or between a number and its unit."""
    wrapper = textwrap.TextWrapper(
        max(width, MIN_WIDTH),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = [WHOLE.sub(lambda part: part[0].replace(" ", "\0"), line) for line in text.split("\n")]
    return "\n".join(map(wrapper.fill, lines)).replace("\0", " ")


def _fit(facts: Sequence[str], room: int, between: str = "  ") -> Sequence[str]:
    """Return the first facts, as many as fit into `room` columns."""
    ends = accumulate(len(fact) + len(between) for fact in facts)
    return facts[: sum(end - len(between) <= room for end in ends)]
