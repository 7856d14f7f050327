"""Console output of a run: lines in a log, a progress bar on a terminal, nothing from ranks other than 0."""

import codecs
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

TITLE_WIDTH = 12  # columns
MIN_WIDTH = 40  # columns; on a narrower terminal, text is wrapped to this width
USUAL_WIDTH = 80  # columns; a narrower terminal shows as many facts of an epoch, over two lines
CONSOLE_ERRORS = "in_other_letters"
MIN_BAR = 8  # columns of the bar itself; facts that do not fit beside it go below
BELOW = "  "  # indents that line
REFRESHES_PER_SECOND = 4  # smooth enough; each takes the GIL, which the decoding threads need too


class Bar(Protocol):
    """Progress through the steps of one pass."""

    def advance(self) -> None:
        """Count one more step as done."""

    def show(self, step: int, *facts: str) -> None:
        """Show facts after a step, counted from 1; the most important first, in case not all fit."""


class Voice(Protocol):
    """Where a program writes what it does."""

    def say(self, text: str) -> None:
        """Write a permanent line without wrapping it, so that a command can be copied."""

    def tell(self, text: str, title: str = "") -> None:
        """Write permanent text, wrapped to the terminal's width; a title gets its own column."""

    def sum_up(self, title: str, *facts: str) -> None:
        """Write a permanent line of facts, the most important first: a terminal omits what does not fit."""

    def warn(self, text: str) -> None:
        """Write a warning."""

    def bar(self, total: int, title: str, done: int = 0, lines_every: int = 1) -> AbstractContextManager[Bar]:
        """A progress bar for a `with` around one pass of `total` steps, of which `done` are complete.

        A log gets a line every `lines_every` steps only; a terminal shows every update.
        """


class Silence:
    """No output: for ranks that would only repeat rank 0."""

    def say(self, text: str) -> None:
        pass

    def tell(self, text: str, title: str = "") -> None:
        pass

    def sum_up(self, title: str, *facts: str) -> None:
        pass

    def warn(self, text: str) -> None:
        pass

    @contextmanager
    def bar(self, total: int, title: str, done: int = 0, lines_every: int = 1) -> Iterator[Bar]:  # noqa: ARG002
        yield _NoBar()


class Quiet(Silence):
    """`--quiet`: warnings only."""

    def warn(self, text: str) -> None:
        print(f"Warning: {text}", file=sys.stderr, flush=True)


class Log:
    """Plain lines, for files, pipes and job logs."""

    def say(self, text: str) -> None:
        print(text, flush=True)

    def tell(self, text: str, title: str = "") -> None:
        self.say(_titled(text, title))

    def sum_up(self, title: str, *facts: str) -> None:
        self.say(_summary(title, facts))

    def warn(self, text: str) -> None:
        print(f"Warning: {text}", flush=True)

    @contextmanager
    def bar(self, total: int, title: str, done: int = 0, lines_every: int = 1) -> Iterator[Bar]:  # noqa: ARG002
        yield _LogBar(total, title, lines_every)


class Recorded:
    """Another voice whose output also goes to a file, including what that voice does not show."""

    def __init__(self, voice: Voice, path: Path) -> None:
        self._voice, self._path = voice, path

    def say(self, text: str) -> None:
        self._voice.say(text)
        self.record(text)

    def tell(self, text: str, title: str = "") -> None:
        self._voice.tell(text, title)
        self.record(_titled(text, title))

    def sum_up(self, title: str, *facts: str) -> None:
        self._voice.sum_up(title, *facts)
        self.record(_summary(title, facts))

    def warn(self, text: str) -> None:
        self._voice.warn(text)
        self.record(f"Warning: {text}")

    @contextmanager
    def bar(self, total: int, title: str, done: int = 0, lines_every: int = 1) -> Iterator[Bar]:
        with self._voice.bar(total, title, done, lines_every) as bar:
            yield _RecordedBar(total, title, lines_every, bar, self)

    def record(self, text: str) -> None:
        """Write a line to the file only."""
        with suppress(OSError):  # a full disk must not end the run
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")


class Terminal:
    """Lines, with a live progress bar below them."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def tell(self, text: str, title: str = "") -> None:
        self.say(self._wrapped(_titled(text, title), TITLE_WIDTH if title else 2))

    def sum_up(self, title: str, *facts: str) -> None:
        room = max(self._console.width, USUAL_WIDTH) - len(_summary(title, ()))
        self.tell(_summary(title, _fitting(facts, room, ", ")))

    def warn(self, text: str) -> None:
        wrapped = self._wrapped(f"Warning: {text}", 2)
        self._console.print(wrapped, markup=False, soft_wrap=True, style="yellow")

    @contextmanager
    def bar(self, total: int, title: str, done: int = 0, lines_every: int = 1) -> Iterator[Bar]:  # noqa: ARG002
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}", markup=False),
        )
        with _TwoLines(
            *columns,
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            expand=True,
        ) as progress:
            yield _TerminalBar(progress, progress.add_task(title, total=total, completed=done, facts=""))

    def _wrapped(self, text: str, indent: int) -> str:
        return "\n".join(
            textwrap.fill(
                line,
                max(self._console.width, MIN_WIDTH),
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line in text.split("\n")
        )


def make_voice(is_main: bool, quiet: bool = False) -> Voice:
    """The voice of this process."""
    if not is_main:
        return Silence()
    if quiet:
        return Quiet()
    # A dumb terminal cannot move the cursor, which a bar needs.
    is_able = sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return Terminal() if is_able else Log()


def write_what_the_console_can() -> None:
    """Replace characters that the console cannot encode, instead of raising an error."""
    codecs.register_error(CONSOLE_ERRORS, _in_other_letters)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=CONSOLE_ERRORS)


def _in_other_letters(error: UnicodeError) -> tuple[str | bytes, int]:
    replaced, end = codecs.backslashreplace_errors(error)
    return str(replaced).replace("\\u2026", "..."), end


def _titled(text: str, title: str) -> str:
    return f"{title:{TITLE_WIDTH}}{text}" if title else text


def _summary(title: str, facts: Sequence[str]) -> str:
    return f"{title}: {', '.join(facts)}"


class _NoBar:
    def advance(self) -> None:
        pass

    def show(self, step: int, *facts: str) -> None:
        pass


@dataclass(frozen=True)
class _LogBar:
    total: int
    title: str
    lines_every: int

    def advance(self) -> None:
        pass

    def show(self, step: int, *facts: str) -> None:
        if step % self.lines_every == 0:
            print(self.line(step, facts), flush=True)

    def line(self, step: int, facts: Sequence[str]) -> str:
        return "  ".join((f"{self.title} {step:{len(str(self.total))}}/{self.total}", *facts))


@dataclass(frozen=True)
class _RecordedBar(_LogBar):
    bar: Bar
    voice: Recorded

    def advance(self) -> None:
        self.bar.advance()

    def show(self, step: int, *facts: str) -> None:
        self.bar.show(step, *facts)
        if step % self.lines_every == 0:
            self.voice.record(self.line(step, facts))


class _TwoLines(Progress):
    """A progress bar with a line of text below it."""

    below = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below, no_wrap=True, overflow="crop")


class _TerminalBar:
    def __init__(self, progress: _TwoLines, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self) -> None:
        self._progress.advance(self._task)

    def show(self, step: int, *facts: str) -> None:  # noqa: ARG002, the bar counts steps itself
        task, width = self._progress.tasks[self._task], self._progress.console.width
        counts = f"{task.description}  {task.total}/{task.total} "
        beside = _fitting(facts, width - len(counts) - MIN_BAR)
        below = _fitting(facts[len(beside) :], width - len(BELOW))
        self._progress.below = BELOW + "  ".join(below) if below else ""
        self._progress.update(self._task, facts="  ".join(beside), refresh=True)


def _fitting(facts: Sequence[str], room: int, between: str = "  ") -> Sequence[str]:
    """The first facts, as many as fit into `room` columns."""
    count = 0
    while count < len(facts) and len(between.join(facts[: count + 1])) <= room:
        count += 1
    return facts[:count]
