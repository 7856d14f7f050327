"""Copying millions of images in threads: in order, with a bounded number in flight."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from train_pytorch_model.formats.writing import CHUNK_BYTES

COPY_THREADS = 16  # copying is bound by storage, not by CPU
AHEAD = 64  # copies submitted and not yet consumed

Item = TypeVar("Item")
Result = TypeVar("Result")


class UnreadableFileError(Exception):
    """A file to be copied cannot be read; the text is the reason, without the file's name."""


@contextmanager
def copy_threads(count: int = COPY_THREADS) -> Iterator[ThreadPoolExecutor]:
    """A thread pool for copying; on an error, tasks that have not started are cancelled."""
    pool = ThreadPoolExecutor(count, thread_name_prefix="copy")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def in_order(
    pool: ThreadPoolExecutor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int = AHEAD,
) -> Iterator[Result]:
    """Yield `function(item)` for each item, computed in the pool; at most `ahead` results wait in memory."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


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
