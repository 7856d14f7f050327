"""Writing of files that are complete or absent, whatever interrupts it."""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from train_pytorch_model.formats.reading import sha256_of

CHUNK_BYTES = 1 << 20  # read or copied at a time
READ_BACK_AFTER_S = (0.0, 0.2, 0.8, 4.0, 10.0, 15.0)  # pauses; half a minute in all, after hours of training


def write_json(path: Path, value: object) -> None:
    """Write JSON as the classic components do: ASCII, indented by two."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=True), encoding="ascii")


def write_yaml(path: Path, value: Mapping[str, Any]) -> None:
    """Write YAML as the classic components do: ASCII, block style, keys in the order given."""
    path.write_text(yaml_text(value))


def yaml_text(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=False, width=1000)


def write_durably(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file atomically: complete or absent, even after a power loss. Raises `OSError`.

    The directory entry is synced by `sync_folder`, once for several files.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if not _holds(part, pieces):  # some mounts report failed writes only later, or never
            raise OSError(errno.EIO, "the file reads back differently from what was written", str(path))
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def sync_tree(root: Path) -> None:
    """Flush all files of a directory to storage, to survive a power loss. Raises `OSError`."""
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(root)


def copy_tree(source: Path, target: Path, last: str) -> None:
    """Copy a directory's files, one by one, into an existing directory; the file named `last` comes last.

    Uses plain writes, which are read back: a mounted output supports no renames and no permissions, and may
    show writes, or report failed ones, with a delay. Raises `OSError`.
    """
    paths = sorted(source.rglob("*"), key=lambda path: (path.name == last, path))
    for path in paths:
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(exist_ok=True)
        else:
            _copy_file(path, copy)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as original, target.open("wb") as copy:
        shutil.copyfileobj(original, copy, CHUNK_BYTES)
        copy.flush()
        os.fsync(copy.fileno())
    expected = sha256_of(source)
    read_back(target, lambda: sha256_of(target) == expected)


def read_back(path: Path, is_right: Callable[[], bool]) -> None:
    """Wait until a file reads back as written; a mount may show it late. Raises `OSError` otherwise."""
    for pause_s in READ_BACK_AFTER_S:
        time.sleep(pause_s)
        with suppress(FileNotFoundError):
            if is_right():
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


def _holds(path: Path, pieces: Sequence[bytes | memoryview]) -> bool:
    """Whether a file consists of these pieces. Read in parts: a second copy might not fit in memory."""
    found = bytearray(CHUNK_BYTES)  # compares with a memoryview by memcmp, where `bytes` is slower
    with path.open("rb") as file:
        for piece in pieces:
            for start in range(0, len(piece), CHUNK_BYTES):
                expected = memoryview(piece)[start : start + CHUNK_BYTES]
                size = file.readinto(memoryview(found)[: len(expected)])
                if found[:size] != expected:
                    return False
        return not file.read(1)
