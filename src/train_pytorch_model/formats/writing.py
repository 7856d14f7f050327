"""Writing of files that are complete or absent, whatever interrupts it; CSV; copying in threads."""

import csv
import errno
import hashlib
import io
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TextIO, TypeVar

import yaml

from train_pytorch_model.formats.reading import sha256_of

CHUNK_BYTES = 1 << 20  # read or copied at a time
# Pauses; half a minute in all, after hours of training.
READ_BACK_AFTER_S = (0.0, 0.2, 0.8, 4.0, 10.0, 15.0)
COPY_THREADS = 16  # copying is bound by storage, not by CPU
AHEAD = 64  # copies submitted and not yet consumed

Item = TypeVar("Item")
Result = TypeVar("Result")


class UnreadableFileError(Exception):
    """A file to be copied cannot be read; the text is the reason, without the file's name."""


def write_json(path: Path, value: object) -> None:
    """Write JSON as the classic components do: ASCII, indented by two."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=True), encoding="ascii")


def write_yaml(path: Path, value: Mapping[str, Any]) -> str:
    """Write YAML as the classic components do, and return it.

    It is ASCII in block style, with keys in the order of `value`.
    """
    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=False, width=1000)
    # Line feeds also on Windows, where it is read back as written.
    path.write_text(text, encoding="ascii", newline="\n")
    return text


def write_rows(file: TextIO, rows: Iterable[Iterable[object]]) -> None:
    """Write CSV with Unix line ends to a file opened with `newline=""`; cells may hold any text.

    Readers take a lone carriage return for the end of a row. Python 3.11 quotes it only if the line
    terminator contains one, so rows are formatted with CR LF, which becomes LF here.
    """
    line = io.StringIO(newline="")
    writer = csv.writer(line, lineterminator="\r\n")
    for row in rows:
        line.seek(0)
        line.truncate(writer.writerow(row))
        file.write(line.getvalue().removesuffix("\r\n") + "\n")


def write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows to a file, undecodable bytes in names as they are. Raises `OSError`."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        write_rows(file, rows)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return the content of such a file; undecodable bytes in names are escaped."""
    text = io.StringIO(newline="")
    write_rows(text, rows)
    return text.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def table_of(row_type: type, rows: Iterable[Any]) -> Iterator[Iterable[object]]:
    """Yield the names of a dataclass's fields, and the values of each row."""
    yield [field.name for field in fields(row_type)]
    yield from map(astuple, rows)


def write_durably(path: Path, *pieces: bytes | memoryview) -> str:
    """Write a file whole or not at all, and return its sha256. Raises `OSError`.

    It survives a power loss after `sync_folder`.
    """
    part = path.with_name(path.name + ".part")
    digest = hashlib.sha256()
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
                digest.update(piece)
            file.flush()
            os.fsync(file.fileno())
        # Some mounts report failed writes only later, or never.
        read_back(part, digest.hexdigest(), waits=False)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    return digest.hexdigest()


def read_back(path: Path, sha256: str, waits: bool = True) -> None:
    """Check that a file reads back as written, which a mount may show late.

    Raises `OSError` otherwise.
    """
    for pause_s in READ_BACK_AFTER_S if waits else (0.0,):
        time.sleep(pause_s)
        with suppress(FileNotFoundError):
            if sha256_of(path) == sha256:
                return
    raise OSError(errno.EIO, "the file reads back differently from what was written", str(path))


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to storage, if its mount supports that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Flush all files of a directory to storage, to survive a power loss. Raises `OSError`."""
    for path in (root, *root.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)


def copy_tree(source: Path, target: Path, last: str) -> None:
    """Copy a directory's files into an existing directory; the file named `last` comes last.

    Uses plain writes, which are read back: a mounted output supports no renames and no permissions,
    and may show writes, or report failed ones, with a delay. Raises `OSError`.
    """
    for path in sorted(source.rglob("*"), key=lambda path: (path.name == last, path)):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(exist_ok=True)
            continue
        with path.open("rb") as original, copy.open("wb") as file:
            shutil.copyfileobj(original, file, CHUNK_BYTES)
            file.flush()
            os.fsync(file.fileno())
        read_back(copy, sha256_of(path))


@contextmanager
def in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int = COPY_THREADS,
    ahead: int = AHEAD,
) -> Iterator[Iterator[Result]]:
    """Yield the results of `function(item)` for each item, computed by threads, for a `with`.

    At most `ahead` results wait. An error cancels the others.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="copy")

    def results() -> Iterator[Result]:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    try:
        yield results()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file into a new one. Raises `UnreadableFileError`, and `OSError` if writing fails."""
    with target.open("xb") as file:  # names that differ only in case collide on some file systems
        for chunk in _read_chunks(source):
            file.write(chunk)


def _read_chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise UnreadableFileError(f"the file cannot be read: {error.strerror}") from error
