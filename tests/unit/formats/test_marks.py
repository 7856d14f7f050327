"""The mark of an unfinished output: whose it is, and when it is taken over."""

import os
import re
from pathlib import Path

import pytest

from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.export.output_file import owning_file
from train_pytorch_model.formats.marks import create_mark, is_abandoned, take_over, writer_in
from train_pytorch_model.formats.outputs import check_output, writing_directory
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.machine.liveness import describe_this_process


def leave_mark(mark: Path) -> None:
    """Leave the mark of a process that has ended."""
    mark.write_text(re.sub(r"started \d+", "started 12", describe_this_process()))


def leave_half(output: Path) -> None:
    """Leave what a command had written when it was killed."""
    (output / "images").mkdir(parents=True)
    (output / "images/1.png").touch()
    (output / META).touch()
    leave_mark(output / INCOMPLETE)


def test_a_mark_is_of_one_living_process(tmp_path: Path) -> None:
    mark = tmp_path / INCOMPLETE
    create_mark(mark)
    assert writer_in(mark).startswith(f"process {os.getpid()} on ")
    assert not is_abandoned(mark)
    assert not take_over(mark)
    with pytest.raises(FileExistsError):
        create_mark(mark)


def test_what_a_process_has_left_that_has_ended_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "output"
    leave_half(output)
    check_output(output, "output")
    with writing_directory(output, {"type": "X"}, "output") as root:
        assert [path.name for path in root.iterdir()] == [INCOMPLETE]
        assert (root / INCOMPLETE).read_text() == describe_this_process()
        with (
            pytest.raises(OutputDirectoryError, match="holds an unfinished result"),
            writing_directory(output, {}, "output"),
        ):
            pytest.fail("the block ran")
    assert [path.name for path in output.iterdir()] == [META]
    assert "which has ended; it is replaced." in caplog.text


def test_only_one_of_several_takes_a_mark_over(tmp_path: Path) -> None:
    mark = tmp_path / INCOMPLETE
    leave_mark(mark)
    assert take_over(mark)
    assert not take_over(mark)
    assert mark.read_text() == describe_this_process()


def test_what_a_process_elsewhere_has_left_is_refused(tmp_path: Path) -> None:
    (tmp_path / "half").touch()
    (tmp_path / INCOMPLETE).write_text("process 12 on elsewhere\nstarted 1 x pid:[1]\n")
    with pytest.raises(
        OutputDirectoryError, match=r"by process 12 on elsewhere\) of a program that is running"
    ):
        check_output(tmp_path, "output")
    assert (tmp_path / "half").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_no_mark(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / INCOMPLETE
    if kind == "link":
        leave_mark(tmp_path / "other")
        mark.symlink_to("other")
    elif kind == "pipe":
        os.mkfifo(mark)
    else:
        mark.mkdir()
    assert not is_abandoned(mark)


def test_a_file_that_a_killed_export_has_left_is_replaced(tmp_path: Path) -> None:
    output = tmp_path / "model.onnx"
    leave_mark(tmp_path / "model.onnx.unfinished")
    (tmp_path / "model.onnx.unfinished.part").write_text("half")
    with owning_file(output) as unfinished:
        unfinished.write_text("whole")
        with pytest.raises(OutputDirectoryError, match="by another export"), owning_file(output):
            pytest.fail("the block ran")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert output.read_text() == "whole"
