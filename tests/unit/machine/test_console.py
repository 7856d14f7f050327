"""The progress of a run, as shown on consoles of every kind."""

import io
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from train_pytorch_model.machine.console import (
    fit_to_stderr,
    log_file,
    logger,
    paragraph,
    progress_bar,
    set_up,
    shown_on_console,
    summary,
    write_what_the_console_can,
)
from train_pytorch_model.machine.terminal import TerminalHandler

FACTS = (
    "loss 1.2345",
    "top-1  45.6%",
    "ETA 12 min 05 s",
    "123.4 images/s",
    "lr 1.00e-03",
    "data wait 12%",
)
PLAN = "40 per epoch, 200 in total: 32 images per step = batch size 32 x 1 process"
EPOCH = (
    "training loss 0.7109",
    "validation loss 0.6839",
    "top-1 58.3%",
    "best",
    "top-5 98.7%",
    "12.5 images/s",
)


class Screen(io.TextIOWrapper):
    """A console that records what is written to it."""

    def __init__(self, encoding: str = "utf-8", is_terminal: bool = True) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding=encoding, newline="")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def text(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode(self.encoding)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Screen]:
    """A function that makes a console of this many columns."""
    for name in (
        "NO_COLOR",
        "FORCE_COLOR",
        "TTY_COMPATIBLE",
        "TTY_INTERACTIVE",
        "JPY_PARENT_PID",
        "MPLBACKEND",
    ):
        monkeypatch.delenv(name, raising=False)

    def make(columns: int = 80, term: str = "xterm", **options: object) -> Screen:
        made = Screen(**options)  # type: ignore[arg-type]
        monkeypatch.setattr("sys.stdout", made)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", "24")
        monkeypatch.setenv("TERM", term)
        return made

    return make


def plain(text: str) -> str:
    """The text without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_the_log_fits_the_console(
    screen: Callable[..., Screen],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen()
    set_up()
    assert isinstance(logger.handlers[0], TerminalHandler)
    in_notebook = (
        {"JPY_PARENT_PID": "1"},
        {"MPLBACKEND": "module://matplotlib_inline.backend_inline"},
    )
    for term, is_terminal, more in (
        ("dumb", True, {}),
        ("xterm", False, {}),
        *(("xterm-color", True, variables) for variables in in_notebook),
    ):
        shown = screen(term=term, is_terminal=is_terminal)
        with monkeypatch.context() as context:
            for name, value in more.items():
                context.setenv(name, value)
            set_up()
        with progress_bar(20, "Epoch 1/5", lines_every=10) as bar:
            for step in range(1, 11):
                bar.advance()
                bar.show(step, "loss 1.5")
        assert shown.text == "Epoch 1/5 10/20  loss 1.5\n"
    shown = screen()
    set_up(is_main=False)
    logger.warning("look")
    set_up(quiet=True)
    logger.info("a line")
    logger.warning("look")
    assert (shown.text, capsys.readouterr().err) == ("", "Warning: look\n")


def test_a_bar_without_facts_shows_the_time_left_and_a_log_gets_lines(
    screen: Callable[..., Screen],
) -> None:
    shown = screen()
    set_up()
    with progress_bar(100, "Scoring") as bar:
        bar.advance(20)
        bar.advance(30)
        bar.log(50, "ETA 2 s")
    assert re.search(r"Scoring .*50/100 ETA \d:\d\d:\d\d", plain(shown.text).replace("\r", "\n"))
    shown = screen(is_terminal=False)
    set_up()
    with progress_bar(100, "Scoring") as bar:
        bar.advance(20)
        bar.advance(30)
        bar.log(50, "ETA 2 s")
    assert shown.text == "Scoring  50/100  ETA 2 s\n"


def test_words_are_wrapped_on_a_narrow_terminal_and_commands_are_not(
    screen: Callable[..., Screen],
) -> None:
    shown = screen(60)
    set_up()
    paragraph(PLAN, "Steps")
    logger.info("  " + "a command " * 10)
    assert shown.text == (
        "Steps       40 per epoch, 200 in total: 32 images per step =\n"
        "            batch size 32 x 1 process\n"
        "  " + "a command " * 10 + "\n"
    )


@pytest.mark.parametrize("columns", range(40, 70))
def test_commands_and_numbers_are_not_broken(columns: int, screen: Callable[..., Screen]) -> None:
    shown = screen(columns)
    set_up()
    parts = ("1 min 04 s", "32 x 32 px", "12,000 images", "80 %", "`init-model --pretrained`")
    logger.warning(
        f"It takes {', or '.join(parts)}, as measured here on a machine, on which {parts[1]} is"
        " few."
    )
    lines = plain(shown.text).splitlines()
    assert " ".join(line.strip() for line in lines).count(parts[1]) == 2
    for part in parts:
        assert any(part in line for line in lines), part
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_error_is_wrapped_for_a_terminal_only(
    is_terminal: bool, screen: Callable[..., Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", screen(80, is_terminal=is_terminal))
    command = "`init-model --architecture resnet50 --output untrained`"
    error = "InvalidModelDirectoryError: There is no such directory.\n"
    error += f"To make an untrained model: run {command}."
    told = fit_to_stderr(error)
    assert command in told
    assert (max(map(len, told.split("\n"))) <= 80) is is_terminal
    assert told.replace("\n  ", " ") == error


def test_a_log_does_not_wrap_lines(screen: Callable[..., Screen]) -> None:
    shown = screen(60, is_terminal=False)
    set_up()
    paragraph(PLAN, "Steps")
    with progress_bar(20, "Epoch 1/5", lines_every=10) as bar:
        for step in (5, 10, 15):
            bar.show(step, *FACTS)
    summary("Epoch 1/5", *EPOCH)
    assert shown.text == (
        f"Steps       {PLAN}\nEpoch 1/5 10/20  {'  '.join(FACTS)}\nEpoch 1/5: {', '.join(EPOCH)}\n"
    )


@pytest.mark.parametrize(
    ("columns", "beside", "below"),
    [
        pytest.param(20, 0, 1, id="tiny"),
        pytest.param(60, 2, 3, id="narrow"),
        pytest.param(80, 3, 3, id="usual"),
        pytest.param(140, 6, 0, id="wide"),
    ],
)
def test_a_bar_shows_as_many_facts_as_fit(
    columns: int, beside: int, below: int, screen: Callable[..., Screen]
) -> None:
    shown = screen(columns)
    set_up()
    with progress_bar(200, "Epoch 1/5") as bar:
        bar.advance()
        bar.show(1, *FACTS)
    lines = [line for line in re.split(r"[\r\n]+", plain(shown.text)) if line.strip()]
    assert all(len(line) <= columns for line in lines)
    drawn = lines[-2:] if below else lines[-1:]
    assert drawn[0].startswith("Epoch 1/5 ")
    assert columns < 40 or drawn[0].endswith(f"1/200 {'  '.join(FACTS[:beside])}")
    assert drawn[1:] == (["  " + "  ".join(FACTS[beside : beside + below])] if below else [])


@pytest.mark.parametrize(
    ("columns", "facts", "lines"),
    [
        pytest.param(60, 4, 2, id="narrow"),
        pytest.param(80, 4, 1, id="usual"),
        pytest.param(140, 6, 1, id="wide"),
    ],
)
def test_an_epoch_is_one_line_on_a_usual_terminal(
    columns: int, facts: int, lines: int, screen: Callable[..., Screen]
) -> None:
    shown = screen(columns)
    set_up()
    summary("Epoch 10/50", *EPOCH)
    assert shown.text.count("\n") == lines
    assert " ".join(shown.text.split()) == f"Epoch 10/50: {', '.join(EPOCH[:facts])}"


def test_a_warning_keeps_its_line_breaks(screen: Callable[..., Screen]) -> None:
    shown = screen(50)
    set_up()
    logger.warning(
        "2 images are left out:\n  Training dataset: 'a.png': "
        + "a long reason " * 3
        + "\n  'b.png'"
    )
    assert plain(shown.text).splitlines() == [
        "Warning: 2 images are left out:",
        "  Training dataset: 'a.png': a long reason a long",
        "  reason a long reason",
        "  'b.png'",
    ]


def test_no_color_turns_colours_off(
    screen: Callable[..., Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = screen()
    set_up()
    logger.warning("look")
    assert "\x1b[33m" in shown.text
    shown = screen()
    monkeypatch.setenv("NO_COLOR", "1")
    set_up()
    logger.warning("look")
    set_up()
    with progress_bar(2, "Epoch 1/5") as bar:
        bar.advance()
    assert not re.search(r"\x1b\[[0-9;]*m", shown.text.replace("\x1b[0m", ""))


def test_characters_that_the_console_cannot_show_are_replaced(
    screen: Callable[..., Screen],
) -> None:
    shown = screen(encoding="ascii")
    write_what_the_console_can()
    set_up()
    logger.info("it holds a, b and \N{SNOWMAN}")
    with progress_bar(2, "Epoch 1/5") as bar:
        bar.advance()
        bar.show(1, "loss 1")
    assert plain(shown.text).startswith("it holds a, b and \\u2603\n")
    assert "\\u" not in plain(shown.text).partition("\n")[2]


def test_output_is_also_written_to_a_log_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "logs" / "rank_0.log"
    for is_main in (True, False):
        set_up(is_main)
        with suppress(ValueError), log_file(path):
            logger.info("a line")
            paragraph("words", "Title")
            summary("Epoch 1/2", "loss 1", "best")
            logger.warning("look")
            with progress_bar(3, "Epoch 1/2") as bar:
                bar.advance()
                bar.show(1, "loss 1.5", "top-1 50%")
            raise ValueError("why it ended")
        logger.info("")
    assert capsys.readouterr().out.splitlines() == [
        *("a line", "Title       words", "Epoch 1/2: loss 1, best", "Warning: look"),
        "Epoch 1/2 1/3  loss 1.5  top-1 50%",
        "",
    ]
    lines = [line[20:] for line in path.read_text().splitlines()]
    assert lines == 2 * [
        *("a line", "Title       words", "Epoch 1/2: loss 1, best", "Warning: look"),
        "Epoch 1/2 1/3  loss 1.5  top-1 50%",
        "ValueError: why it ended",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_names_move_no_cursor_and_set_no_colours(
    screen: Callable[..., Screen], tmp_path: Path, is_terminal: bool
) -> None:
    shown = screen(is_terminal=is_terminal)
    set_up()
    with suppress(ValueError), log_file(tmp_path / "log"):
        logger.info("a category\x1b[2J\x07\rof\nnext line")
        paragraph("a folder\x1b[31m")
        raise ValueError("a file\x1b]0;x\x07")
    assert "a category\\x1b[2J\\x07\\rof" in shown.text
    assert "a folder\\x1b[31m" in shown.text
    assert fit_to_stderr("no \x1b[2J\n  x") == "no \\x1b[2J\n  x"
    written = (tmp_path / "log").read_text()
    assert "a file\\x1b]0;x\\x07" in written
    assert "\x1b" not in written


def test_a_log_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    with log_file(tmp_path / "logs" / "rank_1.log"):
        logger.info("a line")


def test_a_program_without_logging_sees_the_log_for_a_time(
    screen: Callable[..., Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    shown = screen(is_terminal=False)
    with shown_on_console():
        logger.info("within")
    logger.info("after")
    with shown_on_console(is_main=False):
        logger.info("of another process")
    assert shown.text == "within\n"
    assert (logger.handlers, logger.level, logger.propagate) == ([], logging.NOTSET, True)


def test_a_program_with_logging_keeps_it_as_it_is(
    screen: Callable[..., Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    shown = screen()
    monkeypatch.setattr(logging.getLogger(), "handlers", [Listener()])
    with shown_on_console():
        logger.warning("a line")
        assert (logger.handlers, logger.propagate) == ([], True)
    assert (heard, shown.text) == (["a line"], "")
