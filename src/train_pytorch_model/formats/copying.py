"""Copying images by the million: in threads, in order, a bounded number at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from train_pytorch_model.formats.files import CHUNK_BYTES

COPY_THREADS = 16  # copies wait for storage, not for processors
AHEAD = 64  # copies begun and not yet taken

Item = TypeVar("Item")
Result = TypeVar("Result")


class UnreadableFileError(Exception):
    """What is to be copied cannot be read; the text is the reason, without the file's name."""


@contextmanager
def copy_threads(count: int = COPY_THREADS) -> Iterator[ThreadPoolExecutor]:
    """Threads to copy in; at an error, what they have not begun is dropped."""
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
    """`function` of each item, computed in the pool; no more than `ahead` items wait in memory."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file. Raises `UnreadableFileError`."""
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise UnreadableFileError(f"the file cannot be read: {error.strerror}") from error


def write_chunks(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a new file. Raises `OSError` for the writing, and what `chunks` raises for the reading."""
    with path.open("xb") as file:  # names that differ in case only are one name to some file systems
        for chunk in chunks:
            file.write(chunk)
