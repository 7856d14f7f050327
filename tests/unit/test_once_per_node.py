"""A value that all processes of a node need is made by one of them, and its file is removed."""

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.disks import files_of_at_most

from train_pytorch_model.commands import once_per_node as module
from train_pytorch_model.commands.once_per_node import PREFIX, Launch, offered, once_per_node
from train_pytorch_model.formats.packed import PackedNames
from train_pytorch_model.words.errors import InvalidDatasetError

TWO = Launch("train --epochs 2", 2)
THREE = Launch("train --epochs 2", 3)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process makes its own")

# One of several processes: prints how often it made the value, and the value that it has.
PROCESS = """
import json, sys, time
from pathlib import Path
from train_pytorch_model.words.errors import InvalidDatasetError
from train_pytorch_model.formats.packed import PackedNames
from train_pytorch_model.commands.once_per_node import Launch, once_per_node

made = []

def make():
    made.append(1)
    time.sleep(float(sys.argv[2]))
    if sys.argv[3] == "refuse":
        raise InvalidDatasetError("Training dataset", "it is empty.")
    return PackedNames.pack(["1.jpg", "\\udcff.jpg"])

try:
    names = once_per_node(Launch("train", int(sys.argv[1])), make)
    has = [ascii(name) for name in names]
except InvalidDatasetError as error:
    has = str(error)
print(json.dumps([len(made), has]), flush=True)
sys.stdin.read()  # all stay alive until the last has it
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test alone, for the shared files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def start(number: int, seconds: float = 0.0, what: str = "make") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(number), str(seconds), what]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_until_it_is_being_made(folder: Path) -> None:
    while not any(path.stat().st_size for path in folder.iterdir()):
        time.sleep(0.01)


def answers(processes: "list[subprocess.Popen[str]]") -> list[Any]:
    """What each of the processes prints; then they end."""
    said = []
    for process in processes:
        assert process.stdout is not None
        said.append(json.loads(process.stdout.readline()))
    for process in processes:
        process.communicate("")
        assert process.returncode == 0
    return said


def of(value: object) -> Callable[[], Any]:
    return lambda: value


def never() -> Any:
    raise AssertionError("it is made already")


def in_another_process(make: Callable[[], object]) -> None:
    """Call `make` in a forked process, which is killed as soon as it is done."""
    if (child := os.fork()) == 0:
        try:
            make()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_one_of_three_processes_makes_the_value_and_all_have_it(folder: Path) -> None:
    said = answers([start(3, 0.2) for _ in range(3)])
    assert sorted(count for count, _ in said) == [0, 0, 1]
    assert [has for _, has in said] == [["'1.jpg'", "'\\udcff.jpg'"]] * 3
    assert list(folder.iterdir()) == []


def test_an_error_of_one_process_is_raised_in_all(folder: Path) -> None:
    said = answers([start(2, 0.2, "refuse") for _ in range(2)])
    assert sorted(count for count, _ in said) == [0, 1]
    assert {has for _, has in said} == {"Training dataset is not valid, reason: it is empty."}
    assert list(folder.iterdir()) == []


def test_if_the_process_that_makes_it_is_killed_another_takes_over(folder: Path) -> None:
    first = start(2, 60)
    wait_until_it_is_being_made(folder)
    second = start(2)
    first.kill()
    first.communicate()
    assert answers([second]) == [[1, ["'1.jpg'", "'\\udcff.jpg'"]]]
    assert list(folder.iterdir()) == []  # one of the two never read it: the file goes with its process


def test_the_value_of_an_ended_process_is_made_again(folder: Path) -> None:
    in_another_process(lambda: once_per_node(TWO, of("old")))
    (left,) = folder.iterdir()
    assert left.stat().st_size > 32
    assert once_per_node(TWO, of("new")) == "new"
    assert once_per_node(TWO, never) == "new"
    assert list(folder.iterdir()) == []


def test_files_left_by_killed_processes_are_removed_at_the_next_start(folder: Path) -> None:
    in_another_process(lambda: once_per_node(Launch("another command", 2), of("left")))
    (folder / "other file").touch()
    once_per_node(THREE, of("mine"))
    once_per_node(THREE, never)
    assert len(list(folder.glob(f"{PREFIX}*"))) == 1  # for the third process of this launch
    once_per_node(THREE, never)
    assert [path.name for path in folder.iterdir()] == ["other file"]


def test_files_of_living_processes_are_kept_when_others_start(folder: Path) -> None:
    once_per_node(TWO, of("first"))
    other = Launch("another command", 2)
    assert [once_per_node(other, of("second")) for _ in range(2)] == ["second"] * 2
    assert once_per_node(TWO, never) == "first"
    assert list(folder.iterdir()) == []


def test_arrays_and_names_are_mapped_and_not_copied(folder: Path) -> None:
    array = np.arange(1 << 20)
    names = PackedNames.pack(f"image/{index}.jpg" for index in range(1000))
    empty = np.zeros(0)
    kept = once_per_node(TWO, of((array, names, empty, names)))
    others_array, others_names, others_empty, same = once_per_node(TWO, never)
    np.testing.assert_array_equal(kept[0], array)
    np.testing.assert_array_equal(others_array, array)
    assert not others_array.flags.writeable
    assert not others_array.flags.owndata
    assert list(others_names) == list(names)
    assert isinstance(others_names.blob, memoryview)
    assert others_names.select(np.array([3, 1]))[0] == "image/3.jpg"
    assert same is others_names
    assert others_empty.shape == (0,)
    assert list(folder.iterdir()) == []


def test_a_process_outside_the_launch_can_offer_its_value(folder: Path) -> None:
    with offered(TWO, "mine"):
        assert once_per_node(TWO, never) == "mine"
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []


def test_a_file_that_other_users_may_write_is_not_used(folder: Path) -> None:
    once_per_node(TWO, of("first"))
    (path,) = folder.iterdir()
    path.chmod(0o622)
    assert once_per_node(TWO, of("own")) == "own"


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    once_per_node(TWO, of("first"))
    (path,) = folder.iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert once_per_node(TWO, of("own")) == "own"


def test_without_a_temporary_folder_each_process_makes_its_own(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "gone"))
    assert [once_per_node(TWO, of(value)) for value in ("first", "second")] == ["first", "second"]

    def none() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert once_per_node(TWO, of("third")) == "third"


def test_on_a_full_disk_each_process_makes_its_own_without_waiting(folder: Path) -> None:
    with files_of_at_most(10_000):
        values = [once_per_node(THREE, of(np.full(10_000, number))) for number in range(3)]
    assert [value[0] for value in values] == [0, 1, 2]
    (path,) = folder.iterdir()
    assert path.stat().st_size < 100


def test_a_process_at_work_is_waited_for_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    process = start(2, 1)
    wait_until_it_is_being_made(folder)
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    assert once_per_node(Launch("train", 2), never)[0] == "1.jpg"
    answers([process])


def test_a_stopped_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    process = start(2, 60)
    wait_until_it_is_being_made(folder)
    process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    assert once_per_node(Launch("train", 2), of("own")) == "own"
    process.kill()
    process.communicate()


def test_a_mapped_value_stays_valid_when_it_is_made_again(folder: Path) -> None:
    maker = start(3)
    assert maker.stdout is not None
    maker.stdout.readline()
    mapped = once_per_node(Launch("train", 3), never)
    maker.kill()
    maker.communicate()
    assert once_per_node(Launch("train", 3), of("new")) == "new"
    assert list(mapped) == ["1.jpg", "\udcff.jpg"]
    assert len(list(folder.iterdir())) == 1


def test_if_files_cannot_be_mapped_each_process_makes_its_own(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert [once_per_node(TWO, of(value)) for value in ("first", "second")] == ["first", "second"]
    assert len(list(folder.iterdir())) == 1


def test_a_file_with_a_second_hard_link_is_not_used(folder: Path) -> None:
    once_per_node(TWO, of("first"))
    (path,) = folder.iterdir()
    os.link(path, folder / "another name")
    assert once_per_node(TWO, of("own")) == "own"
    assert (folder / "another name").stat().st_size > 32


@pytest.mark.parametrize("missing", ["locks", "processes"])
def test_on_other_systems_each_process_makes_its_own(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "locks":
        monkeypatch.setattr(module, "fcntl", None)
    else:
        monkeypatch.setattr(module, "start_of", lambda _: None)
    assert [once_per_node(TWO, of(value)) for value in ("first", "second")] == ["first", "second"]


def test_unexpected_exceptions_are_not_shared(folder: Path) -> None:
    def fault() -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        once_per_node(TWO, fault)
    assert list(folder.iterdir()) == []
    assert once_per_node(TWO, of("made")) == "made"


def test_a_shared_error_is_complete() -> None:
    def refuse() -> None:
        raise InvalidDatasetError('Training dataset "x"', "it is empty.", "Fill it.")

    for make in (refuse, never):
        with pytest.raises(InvalidDatasetError) as raised:
            once_per_node(TWO, make)
        assert str(raised.value) == 'Training dataset "x" is not valid, reason: it is empty. Fill it.'
