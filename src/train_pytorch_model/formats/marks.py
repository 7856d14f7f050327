"""The mark of an unfinished output: a file that says who writes it.

    process 123 on myhost               for people; or the token of a run that may resume
    started 4567 <boot> <namespaces>    by which it is known later whether that process lives

Only one process can create a mark. That of a process of this host which has ended is taken over.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from train_pytorch_model.machine.liveness import describe_this_process, is_gone

MAX_BYTES = 1000  # of a mark


def create_mark(mark: Path, token: str = "") -> None:
    """Create a mark of this process, or of a run's token. Raises `FileExistsError`, `OSError`."""
    text = (token or describe_this_process()).encode("utf-8", "surrogateescape")
    file = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        os.write(file, text)
    finally:
        os.close(file)


def read_mark(mark: Path) -> str:
    """Return the content of a mark, of bounded length. Raises `OSError`."""
    with mark.open("rb") as file:
        return file.read(MAX_BYTES).decode("utf-8", "surrogateescape")


def is_abandoned(mark: Path) -> bool:
    """Return whether there is a mark, of a process of this host that has surely ended."""
    with suppress(OSError):
        return stat.S_ISREG(mark.lstat().st_mode) and is_gone(read_mark(mark))
    return False


def take_over(mark: Path) -> bool:
    """Make an abandoned mark one of this process; False if it is not, as when another has done so.

    Then what the process that has ended wrote is this one's, to be removed or written again.
    """
    import fcntl  # which Windows lacks: no mark is abandoned there

    with suppress(OSError), mark.open("r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have taken it over, and may even be done, since it was opened.
        if not (os.path.samestat(os.fstat(file.fileno()), mark.lstat()) and is_abandoned(mark)):
            return False
        text = describe_this_process().encode("utf-8", "surrogateescape")
        file.write(text)  # in one piece: what remains of a longer text is no longer looked at
        file.truncate(len(text))
        return True
    return False


def writer_in(mark: Path) -> str:
    """Return who writes an output, `process 123 on myhost`; empty if that is not recorded."""
    with suppress(OSError):
        first_line, _, _ = read_mark(mark).partition("\n")
        if first_line.startswith("process "):
            return first_line
    return ""
