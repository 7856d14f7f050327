"""Lines of the log as a pipe, a job's log or a file gets them."""

import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from train_pytorch_model.config.wording import visible_lines

TITLE_WIDTH = 12  # columns


def text_of(record: logging.LogRecord) -> str:
    """Return the text of a record, unwrapped; names in it move no cursor and set no colours."""
    text = visible_lines(record.getMessage())
    title = getattr(record, "title", "")
    if record.levelno >= logging.WARNING:
        return f"Warning: {text}"
    return f"{title:{TITLE_WIDTH}}{text}" if title else text


class StandardOutputError(OSError):
    """The stream that shows the log cannot be written: its disk is full, or its reader is gone."""


class PlainHandler(logging.StreamHandler):  # type: ignore[type-arg]  # of text
    """Lines, for pipes and job logs."""

    def format(self, record: logging.LogRecord) -> str:
        return text_of(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        """Raise the error that logging handles at the moment."""
        error = sys.exception()
        if isinstance(error, OSError):
            raise StandardOutputError(error.errno, error.strerror) from error
        raise  # noqa: PLE0704


class FileHandler(logging.Handler):
    """Lines with the time, appended to a file that exists from the first one on."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        self.write(text_of(record))

    def write(self, text: str) -> None:
        """Append a text that no record holds."""
        with suppress(OSError):  # a full disk must not end the run
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {visible_lines(text)}\n")
