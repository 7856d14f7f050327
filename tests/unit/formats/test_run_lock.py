"""The run lock: one run at a time, and no lock outlives its holder."""

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import SoftFileLease

from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats import run_lock as module
from train_pytorch_model.formats.run_folder import LOCK
from train_pytorch_model.formats.run_lock import is_locked, run_lock
from train_pytorch_model.machine.liveness import start_of

NO_PROCESS = 1 << 22

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.05)
    monkeypatch.setattr(module, "SILENCE_S", 1.0)


def leave_lock(folder: Path, **changes: object) -> None:
    """Leave the lock of a run that this process would have started, but for some changes."""
    with run_lock(folder):
        content = (folder / LOCK).read_text()
    folder.mkdir()
    for name, value in changes.items():
        (line,) = [line for line in content.splitlines() if line.startswith(f"{name}=")]
        content = content.replace(line, f"{name}={value}")
    (folder / LOCK).write_text(content)


def take(folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
    """Take and release the lock."""
    with run_lock(folder, say):
        assert f"\npid={os.getpid()}\n" in (folder / LOCK).read_text()
    assert not folder.exists()


def test_a_second_run_is_refused_and_leaves_the_lock(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        with pytest.raises(OutputDirectoryError) as raised, run_lock(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()
    assert str(raised.value) == (
        f"--trained-model: another run is writing here: process {os.getpid()} on"
        f" {socket.gethostname()!r}"
        f" ({tmp_path / LOCK}). Wait for it, end it, or name another output."
    )


@linux_only
def test_filelock_encodes_host_and_start_of_the_holder_as_they_are_decoded_here(
    tmp_path: Path,
) -> None:
    lease = SoftFileLease(tmp_path / LOCK, lease_duration=1)
    with lease:
        owner = lease.owner
    assert owner is not None
    assert owner.pid == os.getpid()
    assert owner.hostname.split(module.NAMESPACE_MARK)[0] == socket.gethostname()
    assert owner.start is not None
    assert str(owner.start % 2**64) == start_of(os.getpid())


def test_the_lock_of_a_dead_process_is_taken_at_once(tmp_path: Path) -> None:
    leave_lock(tmp_path, pid=NO_PROCESS)
    said: list[str] = []
    take(tmp_path, said.append)
    assert said == []


@linux_only
def test_the_lock_of_a_zombie_is_taken(tmp_path: Path) -> None:
    code = f"import os, pathlib, sys; sys.path[:] = {sys.path!r}\n"
    code += f"from {module.__name__} import run_lock\n"
    code += f"with run_lock(pathlib.Path({str(tmp_path)!r})): os._exit(0)"
    with subprocess.Popen([sys.executable, "-c", code]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet reaped
        assert f"pid={ended.pid}\n" in (tmp_path / LOCK).read_text()
        (tmp_path / LOCK).write_text(
            (tmp_path / LOCK).read_text().replace("duration=30.0", "duration=1.0")
        )
        take(tmp_path)


@linux_only
def test_another_process_with_the_same_pid_is_not_the_holder(tmp_path: Path) -> None:
    leave_lock(tmp_path, start=12345)
    take(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"filelock/2\n", b"filelock/2\nmode=lease\npid=x\n"]
)
def test_a_malformed_lock_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    take(tmp_path)


def test_the_lock_of_a_silent_holder_on_another_host_is_taken_after_a_wait(tmp_path: Path) -> None:
    leave_lock(tmp_path, host="elsewhere")
    said: list[str] = []
    take(tmp_path, said.append)
    assert said == ["A run on 'elsewhere' has left its lock here; checking whether it is alive …"]


def test_a_file_system_that_cannot_exchange_names_does_not_keep_a_dead_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_lock(tmp_path, pid=NO_PROCESS)
    monkeypatch.setattr(SoftFileLease, "_take_over", lambda *_: None, raising=False)  # as with NFS
    take(tmp_path)


def test_a_holder_on_another_host_that_renews_its_lock_is_alive(tmp_path: Path) -> None:
    leave_lock(tmp_path, host="elsewhere?pidns-f0000001")
    with (
        pytest.raises(OutputDirectoryError, match=f"process {os.getpid()} on 'elsewhere' "),
        run_lock(tmp_path, lambda _: os.utime(tmp_path / LOCK, (1, 1))),
    ):
        time.sleep(0)  # never reached


def test_a_lock_of_another_duration_is_another_runs(tmp_path: Path) -> None:
    leave_lock(tmp_path, duration=5.0, host="elsewhere")
    with pytest.raises(OutputDirectoryError, match="on 'elsewhere' "), run_lock(tmp_path):
        pass


def test_the_holder_renews_its_lock(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        os.utime(tmp_path / LOCK, (1, 1))
        deadline = time.monotonic() + 60
        while (tmp_path / LOCK).stat().st_mtime == 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_lock_lost_to_another_run_is_not_removed(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        (tmp_path / LOCK).unlink()
        (tmp_path / LOCK).write_text("theirs")
    assert (tmp_path / LOCK).read_text() == "theirs"


@linux_only
def test_only_one_of_many_contenders_gets_a_stale_lock(tmp_path: Path) -> None:
    leave_lock(tmp_path, pid=NO_PROCESS)
    ready, over = threading.Barrier(8), threading.Event()
    got, refused = [], []

    def contend() -> None:
        ready.wait()
        try:
            with run_lock(tmp_path):
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


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputDirectoryError) as raised, run_lock(tmp_path / "file"):
        pass
    assert str(raised.value) == (
        f"--trained-model: the folder of the run, {tmp_path / 'file'}, cannot be written: File"
        " exists."
    )


def test_a_lock_that_cannot_be_written_is_named_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(SoftFileLease, "acquire", fail)
    with (
        pytest.raises(
            OutputDirectoryError, match=r"new/lock cannot be written: Read-only file system\.$"
        ),
        run_lock(tmp_path / "new"),
    ):
        pass
    assert not (tmp_path / "new").exists()


def test_a_folder_is_locked_while_a_process_of_this_host_lives_or_another_host_holds_it(
    tmp_path: Path,
) -> None:
    assert not is_locked(tmp_path)
    with run_lock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    leave_lock(tmp_path, pid=NO_PROCESS)
    assert not is_locked(tmp_path)
    (tmp_path / LOCK).unlink()
    leave_lock(tmp_path, host="elsewhere")
    assert is_locked(tmp_path)
    (tmp_path / LOCK).write_bytes(b"")  # left by a host that crashed
    assert not is_locked(tmp_path)
