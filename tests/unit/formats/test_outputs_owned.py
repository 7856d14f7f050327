"""Output directories that two commands want: one owns it from the first byte to the clean-up."""

import _pyio  # type: ignore[import-not-found]  # missing in typeshed
import errno
import io
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats import writing
from train_pytorch_model.formats.outputs import check_no_training, check_output, writing_directory
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.machine.log_lines import StandardOutputError


def test_a_directory_with_an_owner_is_refused_and_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with writing_directory(output, {"type": "X"}, "output"):
        (output / "data").touch()
        with (
            pytest.raises(
                OutputDirectoryError, match=rf"by process {os.getpid()} on \S+\) of a program that"
            ),
            writing_directory(output, {}, "output"),
        ):
            pytest.fail("the block ran")
        assert sorted(entry.name for entry in output.iterdir()) == [INCOMPLETE, "data"]
    assert sorted(entry.name for entry in output.iterdir()) == [META, "data"]


def test_an_output_is_read_back_as_written_where_lines_end_in_two_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "linesep", "\r\n")  # as on Windows
    monkeypatch.setattr(io, "open", _pyio.open)  # it obeys that
    monkeypatch.setattr(writing, "READ_BACK_AFTER_S", (0.0,))
    with writing_directory(tmp_path / "output", {"type": "X", "extension": {}}, "output"):
        pass
    assert (tmp_path / "output" / META).read_bytes() == b"type: X\nextension: {}\n"


@pytest.mark.parametrize("is_complete", [True, False])
def test_an_owner_that_comes_after_the_check_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_complete: bool
) -> None:
    output = tmp_path / "output"
    mkdir = Path.mkdir

    def mkdir_later(path: Path, *arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        mkdir(path, *arguments, **named)
        (path / ("data" if is_complete else INCOMPLETE)).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir_later)
    message = r"is not empty: it holds data" if is_complete else r"holds an unfinished result"
    with (
        pytest.raises(OutputDirectoryError, match=message),
        writing_directory(output, {}, "output"),
    ):
        pytest.fail("the block ran")
    assert [entry.name for entry in output.iterdir()] == ["data" if is_complete else INCOMPLETE]


@pytest.mark.parametrize("fails", [False, True])
def test_of_writers_that_start_together_one_at_a_time_owns_an_output(
    tmp_path: Path, fails: bool
) -> None:
    for trial in range(50):
        output, barrier = tmp_path / f"new/{trial}", Barrier(4)
        with ThreadPoolExecutor(4) as pool:
            ends = [pool.submit(_write, output, barrier, fails) for _ in range(4)]
        ended = Counter(end.result() for end in ends)
        if fails:
            assert ended["failed"] + ended["refused"] == 4
            assert not [
                *output.glob("*")
            ]  # the directory stays if one that was refused has created it
        else:
            assert ended == {"complete": 1, "refused": 3}
            assert sorted(entry.name for entry in output.iterdir()) == [META, "data"]


def _write(output: Path, barrier: Barrier, fails: bool) -> str:
    barrier.wait()
    try:
        with writing_directory(output, {"type": "X"}, "output"):
            (output / "data").touch(exist_ok=False)
            if fails:
                raise ZeroDivisionError
    except OutputDirectoryError as error:
        return "refused" if "holds" in str(error) else str(error)
    except ZeroDivisionError:
        return "failed"
    return "complete"


def test_the_output_of_a_running_training_is_refused_to_other_commands(tmp_path: Path) -> None:
    (tmp_path / "model.run").mkdir()
    (tmp_path / "model.run/lock").touch()
    with pytest.raises(OutputDirectoryError, match=r"is the output of a training that is running"):
        check_output(tmp_path / "model", "output")
    with pytest.raises(OutputDirectoryError, match=r"is the output of a training that is running"):
        check_no_training(tmp_path / "model", "output")
    check_output(tmp_path / "model", "trained_model")
    check_output(tmp_path / "model", "output", token="of that training")


@pytest.mark.parametrize("text", ["mine", ""])
def test_a_writer_that_resumes_replaces_what_it_has_left(tmp_path: Path, text: str) -> None:
    (tmp_path / INCOMPLETE).write_text(text)
    if text:
        (tmp_path / "half").touch()
    check_output(tmp_path, "trained_model", token="mine")
    with writing_directory(tmp_path, {}, "trained_model", "mine"):
        assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [
            (INCOMPLETE, "mine")
        ]
    (tmp_path / INCOMPLETE).write_text("")
    with pytest.raises(OutputDirectoryError):  # not alone
        check_output(tmp_path, "trained_model", token="mine")


def test_what_cannot_be_printed_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(StandardOutputError), writing_directory(tmp_path / "output", {}, "output"):
        raise StandardOutputError(errno.ENOSPC, "No space left on device")
    assert not (tmp_path / "output").exists()
