"""What a person sees of a run: lines in a log, a bar on a terminal, nothing from ranks other than 0."""

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

TITLE_WIDTH = 12  # of the column of titles
MIN_WIDTH = 40  # of a terminal that words are wrapped for; a narrower one breaks them itself
USUAL_WIDTH = 80  # a narrower terminal shows as many facts of an epoch as this one, in two lines
CONSOLE_ERRORS = "in_other_letters"
MIN_BAR = 8  # columns of the bar itself; the facts that have no room beside it stand below
BELOW = "  "  # before what stands there
REFRESHES_PER_SECOND = 4  # enough for the eye; each takes the lock that the decoding threads want, too


class Bar(Protocol):
    """The steps of one pass."""

    def advance(self) -> None:
        """One more step is done."""

    def show(self, step: int, *facts: str) -> None:
        """How it goes after a step, counted from 1; the most important first, in case room is short."""


class Voice(Protocol):
    """Where a program says what it does."""

    def say(self, text: str) -> None:
        """A line that stays, as it is: a command can be copied."""

    def tell(self, text: str, title: str = "") -> None:
        """The same of words, which are wrapped where the terminal is narrow; a title gets its own column."""

    def sum_up(self, title: str, *facts: str) -> None:
        """A line that stays, the most important fact first: a terminal leaves out what it has no room for."""

    def warn(self, text: str) -> None:
        """A line that asks for attention."""

    def bar(self, total: int, title: str, done: int = 0, lines_every: int = 1) -> AbstractContextManager[Bar]:
        """A `with` around one pass of `total` steps, of which some are `done`.

        A log has a line of what is shown after every `lines_every` steps only; a terminal has all of it.
        """


class Silence:
    """Of the ranks whose words would only repeat rank 0's."""

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
    """Another voice, and all it is told in a file: what it has no words for as well."""

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
        """A line for the file alone."""
        with suppress(OSError):  # a full disk must not end what it tells of
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")


class Terminal:
    """Lines, and a bar below them that moves."""

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
    """Letters that the console does not have become others: they are no error."""
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
    """A bar, and a line below it."""

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

    def show(self, step: int, *facts: str) -> None:  # noqa: ARG002, the bar itself has got there
        task, width = self._progress.tasks[self._task], self._progress.console.width
        counts = f"{task.description}  {task.total}/{task.total} "
        beside = _fitting(facts, width - len(counts) - MIN_BAR)
        below = _fitting(facts[len(beside) :], width - len(BELOW))
        self._progress.below = BELOW + "  ".join(below) if below else ""
        self._progress.update(self._task, facts="  ".join(beside), refresh=True)


def _fitting(facts: Sequence[str], room: int, between: str = "  ") -> Sequence[str]:
    """The first of the facts, as many as fit beside each other."""
    count = 0
    while count < len(facts) and len(between.join(facts[: count + 1])) <= room:
        count += 1
    return facts[:count]
