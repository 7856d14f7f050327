"""Writing a checkpoint never costs an earlier one, whichever call fails or is the last."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints import checkpoint_of, loaded_step

from train_pytorch_model.training.checkpoint_files import save_checkpoint


class Fault:
    """Lets `passed` system calls succeed, then acts on every later one, or on the next one only."""

    def __init__(self, passed: int, act: Callable[[], None], is_single: bool = False) -> None:
        self.left, self.act, self.is_single, self.seen = passed, act, is_single, 0

    def __call__(self) -> None:
        self.seen += 1
        self.left -= 1
        if self.left == -1 or (self.left < 0 and not self.is_single):
            self.act()


class FaultyFile:
    """A file of which every call may fail; a failed write writes half of the data, silently if
    `is_short`."""

    def __init__(self, file: object, fault: Fault, is_short: bool) -> None:
        self._file, self._fault, self._is_short = file, fault, is_short

    def __enter__(self) -> "FaultyFile":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._fault()
        finally:
            self._file.close()  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, data: bytes) -> None:
        try:
            self._fault()
        except OSError:
            self._file.write(data[: len(data) // 2])  # type: ignore[attr-defined]
            if not self._is_short:
                raise
            return
        self._file.write(data)  # type: ignore[attr-defined]

    def flush(self) -> None:
        self._fault()
        self._file.flush()  # type: ignore[attr-defined]

    def read(self, size: int = -1) -> bytes:
        self._fault()
        return bytes(self._file.read(size))  # type: ignore[attr-defined]

    def readinto(self, buffer: memoryview) -> int:
        self._fault()
        return int(self._file.readinto(buffer))  # type: ignore[attr-defined]


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fault, bool], None]]:
    """Injects a fault into every file-system call of a commit."""

    def into_all(fault: Fault, is_short: bool = False) -> None:
        def faulty(function: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                fault()
                return function(*arguments, **options)

            return call

        open_path: Any = Path.open

        def open_faulty(self: Path, *arguments: object, **options: object) -> object:
            fault()
            return FaultyFile(open_path(self, *arguments, **options), fault, is_short)

        monkeypatch.setattr(Path, "open", open_faulty)
        for name in ("replace", "unlink", "mkdir"):
            monkeypatch.setattr(Path, name, faulty(getattr(Path, name)))
        monkeypatch.setattr(os, "fsync", faulty(os.fsync))

    yield into_all
    monkeypatch.undo()


def count_calls(
    folder: Path, inject: Callable[[Fault, bool], None], monkeypatch: pytest.MonkeyPatch
) -> int:
    """The number of system calls that a commit makes."""
    fault = Fault(1 << 30, lambda: None)
    inject(fault, False)
    save_checkpoint(folder, checkpoint_of(3))
    monkeypatch.undo()
    return fault.seen


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS])
def test_after_any_failed_call_an_intact_checkpoint_remains_and_the_next_save_succeeds(
    tmp_path: Path,
    inject: Callable[[Fault, bool], None],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    is_short: bool,
) -> None:
    def fail() -> None:
        raise OSError(code, os.strerror(code))

    folder = tmp_path / "counted"
    save_checkpoint(folder, checkpoint_of(2))
    calls = count_calls(folder, inject, monkeypatch)
    assert calls > 15
    for passed in range(calls):
        folder = tmp_path / str(passed)
        save_checkpoint(folder, checkpoint_of(1))
        save_checkpoint(folder, checkpoint_of(2))
        inject(
            Fault(passed, fail, is_single=is_short), is_short
        )  # only reading back reveals a short write
        try:
            save_checkpoint(folder, checkpoint_of(3))
            saved = {3}
        except OSError as error:
            saved = (
                {2, 3} if error.errno in (code, errno.EIO) else set()
            )  # EIO: it reads back differently
        monkeypatch.undo()
        assert loaded_step(folder) in saved
        save_checkpoint(folder, checkpoint_of(4))
        assert loaded_step(folder) == 4
        assert len(list(folder.iterdir())) == 4


@pytest.mark.filterwarnings(
    "ignore:.*fork:DeprecationWarning"
)  # about threads that other tests have left
def test_after_a_kill_at_any_call_an_intact_checkpoint_remains(
    tmp_path: Path, inject: Callable[[Fault, bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "counted"
    save_checkpoint(folder, checkpoint_of(2))
    calls = count_calls(folder, inject, monkeypatch)
    found = set()
    for passed in range(calls):
        folder = tmp_path / str(passed)
        save_checkpoint(folder, checkpoint_of(1))
        save_checkpoint(folder, checkpoint_of(2))
        pid = os.fork()
        if pid == 0:
            inject(Fault(passed, lambda: os._exit(9)), False)
            save_checkpoint(folder, checkpoint_of(3))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
        found.add(loaded_step(folder))
        save_checkpoint(folder, checkpoint_of(4))
        assert loaded_step(folder) == 4
        assert len(list(folder.iterdir())) == 4
    assert found == {2, 3}
