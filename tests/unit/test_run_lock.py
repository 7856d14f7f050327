"""The run lock: one run at a time, and no lock outlives its holder."""

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from train_pytorch_model.formats import run_lock as module
from train_pytorch_model.formats.run_lock import LOCK, run_lock
from train_pytorch_model.machine.process_table import start_of
from train_pytorch_model.words.errors import OutputDirectoryError

FLAG = "--trained-model"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "SILENCE_S", 0.2)


@pytest.fixture
def _beating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_S", 0.01)


def leave_lock(folder: Path, **content: Any) -> dict[str, Any]:
    holder = {"host": socket.gethostname(), "pid": 1, "started": "0", "token": "theirs", "beat": 0} | content
    (folder / LOCK).write_text(json.dumps(holder))
    return holder


def take(folder: Path) -> dict[str, Any]:
    """Take and release the lock; returns its content while it was held."""
    with run_lock(folder, FLAG):
        held: dict[str, Any] = json.loads((folder / LOCK).read_text())
    assert not (folder / LOCK).exists()
    return held


def test_a_lock_names_its_holder_and_is_removed_with_it(tmp_path: Path) -> None:
    held = take(tmp_path)
    assert (held["host"], held["pid"]) == (socket.gethostname(), os.getpid())
    assert held["started"] == start_of(os.getpid())


def test_a_second_run_is_refused_and_leaves_the_lock(tmp_path: Path) -> None:
    with run_lock(tmp_path, FLAG):
        with pytest.raises(OutputDirectoryError) as raised, run_lock(tmp_path, FLAG):
            pass
        assert (tmp_path / LOCK).exists()
    assert str(raised.value) == (
        f"--trained-model: another run is writing here: process {os.getpid()} on {socket.gethostname()!r}"
        f" ({tmp_path / LOCK}). Wait for it, end it, or name another output."
    )


@pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")
def test_the_lock_of_a_dead_process_or_zombie_is_taken_at_once(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    zombie_started = start_of(ended.pid)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet reaped
    leave_lock(tmp_path, pid=ended.pid, started=zombie_started)
    assert take(tmp_path)["pid"] == os.getpid()
    ended.wait()
    leave_lock(tmp_path, pid=ended.pid, started=zombie_started)
    assert take(tmp_path)["pid"] == os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")
def test_another_process_with_the_same_pid_is_not_the_holder(tmp_path: Path) -> None:
    leave_lock(tmp_path, pid=os.getpid(), started="12345")
    assert take(tmp_path)["token"] != "theirs"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'"text"', b"{}", b'{"pid": "x"}'])
def test_a_malformed_lock_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    assert take(tmp_path)["pid"] == os.getpid()


def test_the_lock_of_a_silent_holder_on_another_host_is_taken_after_a_wait(tmp_path: Path) -> None:
    leave_lock(tmp_path, host="elsewhere")
    said: list[str] = []
    with run_lock(tmp_path, FLAG, said.append):
        pass
    assert said == ["A run on 'elsewhere' has left its lock here; checking whether it is alive …"]


@pytest.mark.parametrize("change", [{"beat": 1}, {"token": "another", "beat": 0}])
def test_a_holder_on_another_host_that_beats_is_alive(tmp_path: Path, change: dict[str, Any]) -> None:
    holder = leave_lock(tmp_path, host="elsewhere")

    def beat(_: str) -> None:
        (tmp_path / LOCK).write_text(json.dumps(holder | change))

    with (
        pytest.raises(OutputDirectoryError, match=r"process 1 on 'elsewhere'"),
        run_lock(tmp_path, FLAG, beat),
    ):
        pass


@pytest.mark.usefixtures("_beating")
def test_the_holder_beats(tmp_path: Path) -> None:
    with run_lock(tmp_path, FLAG):
        deadline = time.monotonic() + 60
        while (module._read(tmp_path / LOCK) or {}).get("beat", 0) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.usefixtures("_beating")
def test_a_lock_lost_to_another_run_is_neither_updated_nor_removed(tmp_path: Path) -> None:
    with run_lock(tmp_path, FLAG):
        with module._undisturbed(tmp_path):
            theirs = leave_lock(tmp_path)
        time.sleep(0.1)
        assert json.loads((tmp_path / LOCK).read_text()) == theirs
    assert json.loads((tmp_path / LOCK).read_text()) == theirs


@pytest.mark.usefixtures("_beating")
def test_a_lock_that_vanished_is_not_created_again(tmp_path: Path) -> None:
    with run_lock(tmp_path, FLAG):
        with module._undisturbed(tmp_path):
            (tmp_path / LOCK).unlink()
        time.sleep(0.05)
        assert not (tmp_path / LOCK).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")
def test_only_one_of_many_contenders_gets_a_stale_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, delays = Path.unlink, itertools.count()

    def unlink_late(path: Path, missing_ok: bool = False) -> None:
        # As on a busy machine: by then the stale lock may have been replaced by another's.
        time.sleep(5 * module.POLL_S * next(delays))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_late)
    leave_lock(tmp_path, pid=1 << 22)
    ready, over = threading.Barrier(8), threading.Event()
    got, refused = [], []

    def contend() -> None:
        ready.wait()
        try:
            with run_lock(tmp_path, FLAG):
                got.append(1)
                over.wait(20)
        except OutputDirectoryError:
            refused.append(1)
        if len(refused) == 7:
            over.set()

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 7)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OutputDirectoryError, match=r"file/lock cannot be written: Not a directory\.$"),
        run_lock(tmp_path / "file", FLAG),
    ):
        pass
