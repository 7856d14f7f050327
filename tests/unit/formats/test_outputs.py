"""Output directories are complete or absent, and copies read back as they were written."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from train_pytorch_model.errors import OutputDirectoryError, UnfinishedOutputError
from train_pytorch_model.formats.outputs import (
    PROBE,
    check_output,
    empty_directory,
    writing_directory,
)
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.formats.writing import (
    CHUNK_BYTES,
    READ_BACK_AFTER_S,
    copy_tree,
    write_durably,
)

# ── Output directories ───────────────────────────────────────────────────────────────────────────


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_output(tmp_path / "a/b/c", "output")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").mkdir()
    check_output(tmp_path / "empty", "output")
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


def test_an_output_that_is_not_free_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    for name in "dbca":
        (tmp_path / "full" / name).touch()
    (tmp_path / "few").mkdir()
    (tmp_path / "few/a").touch()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / INCOMPLETE).touch()
    (tmp_path / "unfinished" / "half").touch()
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    for name, message in {
        "file": "is a file. Name a directory that is new or empty.",
        "full": "is not empty: it holds a, b, c …. Name a directory that is new or empty.",
        "few": "is not empty: it holds a. Name a directory that",
        "unfinished": "holds an unfinished result (_incomplete is present) of a program that is"
        " running, or was stopped. Wait for it, delete the directory, or name another.",
        "scores.csv": f"will be a directory, but is named like a file. Name it"
        f" {tmp_path / 'scores'}.",
        "dangling": "cannot be written: No such file or directory. Name a directory that is new or"
        " empty.",
        "file/inside": "cannot be written: Not a directory. Name a directory that is new or empty.",
        "a" * 300: "cannot be written: File name too long.",
    }.items():
        with pytest.raises(OutputDirectoryError) as raised:
            check_output(tmp_path / name, "output")
        assert str(raised.value).startswith(f"--output {tmp_path / name} {message}")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "dangling",
        "few",
        "file",
        "full",
        "unfinished",
    ]


@pytest.mark.parametrize("by_writing", [True, False])
def test_the_write_test_of_another_process_is_not_taken_for_a_result(
    tmp_path: Path, by_writing: bool
) -> None:
    (tmp_path / f"{PROBE}abc").touch()
    check_output(tmp_path, "output", by_writing)
    (tmp_path / INCOMPLETE).touch()
    with pytest.raises(OutputDirectoryError, match=r"holds an unfinished result"):
        check_output(tmp_path, "output", by_writing)


def test_a_directory_may_be_named_like_a_file_if_it_exists(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").mkdir()
    check_output(tmp_path / "scores.csv", "output")


def test_a_check_without_writing_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "touch", lambda *_: pytest.fail("it has written"))
    monkeypatch.setattr(Path, "mkdir", lambda *_: pytest.fail("it has written"))
    check_output(tmp_path / "new", "output", by_writing=False)
    check_output(tmp_path, "output", by_writing=False)


def test_a_full_disk_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    output = tmp_path / "deep/output"

    def write() -> None:
        with writing_directory(output, {}, "output") as root:
            (root / "half").touch()
            raise OSError(errno.ENOSPC, "No space left on device", "half")

    with pytest.raises(UnfinishedOutputError) as raised:
        write()
    assert raised.value.exit_status == 4
    assert str(raised.value) == (
        f"--output {output} cannot be finished, and nothing is left of it: [Errno 28] No space"
        " left on device: 'half'."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_marked_incomplete_until_its_meta_is_written(tmp_path: Path) -> None:
    output = tmp_path / "deep/output"
    meta: dict[str, object] = {}
    with writing_directory(output, meta, "output") as root:
        assert [entry.name for entry in root.iterdir()] == [INCOMPLETE]
        (root / "data").write_text("x")
        meta["type"] = "X"
    assert sorted(entry.name for entry in output.iterdir()) == [META, "data"]
    assert (output / META).read_text() == "type: X\n"


@pytest.mark.parametrize("existed", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_nothing_of_the_result_is_left(
    tmp_path: Path, error: type[BaseException], existed: bool
) -> None:
    output = tmp_path / "output"
    if existed:
        output.mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/data").touch()

    def write() -> None:
        with writing_directory(output, {}, "output") as root:
            (root / "folder/inner").mkdir(parents=True)
            (root / "folder/inner/data").touch()
            (root / "link").symlink_to(tmp_path / "precious")
            raise error

    with pytest.raises(error):
        write()
    assert output.exists() == existed
    assert list(tmp_path.glob("output/*")) == []
    assert (tmp_path / "precious/data").exists()


def test_a_directory_being_emptied_is_marked_incomplete_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / META).touch()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        empty_directory(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [INCOMPLETE, "image"]
    monkeypatch.undo()
    empty_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_empty_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with (
        pytest.raises(OutputDirectoryError, match=r"is not empty: it holds data"),
        writing_directory(tmp_path, {}, "output"),
    ):
        pytest.fail("the block ran")
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


# ── Copies ───────────────────────────────────────────────────────────────────────────────────────


def test_a_tree_is_copied_file_by_file_without_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "code").mkdir(parents=True)
    for name in ("z", "manifest.json", "code/a"):
        (source / name).write_text(name)
    target.mkdir()
    opened: list[str] = []
    real_open = Path.open

    def watched_open(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if "w" in mode:
            opened.append(path.relative_to(target).as_posix())
        return real_open(path, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", watched_open)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("a mount may not know this"))
    copy_tree(source, target, last="manifest.json")
    assert opened == ["code/a", "z", "manifest.json"]
    assert {path.name: path.read_text() for path in target.rglob("*") if path.is_file()} == {
        "a": "code/a",
        "z": "z",
        "manifest.json": "manifest.json",
    }


@pytest.mark.parametrize("landed", [b"", b"wr", b"written and more", b"Written"])
def test_data_that_a_mount_has_not_kept_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bytes
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for directory in (source, target):
        directory.mkdir()
    (source / "model").write_bytes(b"written")
    # The mount ends up with other bytes than were written.
    monkeypatch.setattr(os, "fsync", lambda _: (target / "model").write_bytes(landed))
    pauses = Pauses(monkeypatch)
    with pytest.raises(OSError, match=r"the file reads back differently from what was written"):
        copy_tree(source, target, last="manifest.json")
    assert pauses.taken == list(READ_BACK_AFTER_S)


def test_data_that_a_mount_shows_late_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for directory in (source, target):
        directory.mkdir()
    (source / "model").write_bytes(b"written")
    monkeypatch.setattr(
        os, "fsync", lambda _: (target / "model").unlink()
    )  # the file is not visible yet
    copy = target / "model"
    pauses = Pauses(monkeypatch, {2: copy.touch, 3: lambda: copy.write_bytes(b"written")})
    copy_tree(source, target, last="manifest.json")
    assert (target / "model").read_bytes() == b"written"
    assert pauses.taken == list(READ_BACK_AFTER_S[:4])


class Pauses:
    """Replaces `time.sleep`: records the pauses, and does what a mount does during each, by its
    number."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        meanwhile: Mapping[int, Callable[[], object]] | None = None,
    ) -> None:
        self.taken: list[float] = []
        self._meanwhile = meanwhile or {}
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self._meanwhile.get(len(self.taken), lambda: None)()
        self.taken.append(seconds)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.pwrite(file, b"x", 1),
        lambda file: os.pwrite(file, b"x", CHUNK_BYTES + 3),
        lambda file: os.pwrite(file, b"x", CHUNK_BYTES + 9),
        lambda file: os.ftruncate(file, CHUNK_BYTES + 8),
        lambda file: os.ftruncate(file, CHUNK_BYTES + 12),
    ],
    ids=["first part", "second part", "second piece", "too short", "too long"],
)
def test_a_file_that_reads_back_differently_is_not_kept(
    damage: Callable[[int], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = b"a" * (CHUNK_BYTES + 7), memoryview(b"bcd")
    write_durably(tmp_path / "good", *pieces)
    assert (tmp_path / "good").read_bytes() == b"".join(pieces)
    monkeypatch.setattr(os, "fsync", damage)
    with pytest.raises(OSError, match=r"the file reads back differently from what was written"):
        write_durably(tmp_path / "bad", *pieces)
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
