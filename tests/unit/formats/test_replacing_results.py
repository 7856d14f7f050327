"""A result takes the place of another of its kind: only of one as it was written."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats.outputs import check_output, writing_directory
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.replacing import IMAGES, SCORED, TRAINED, replacement_of


def write_scores(root: Path, content: str, kind: str = SCORED, overwrite: bool = False) -> Path:
    with writing_directory(root, {"type": kind}, "output", overwrite=overwrite) as folder:
        (folder / "parts").mkdir()
        (folder / "parts/scores.csv").write_text(content)
    return root


def touch_later(path: Path) -> None:
    """Write a file whose time is after that of the result, however coarse the clock."""
    completed = (path.parent / META).stat().st_ctime_ns
    path.touch()
    while path.stat().st_ctime_ns <= completed:
        time.sleep(0.001)
        path.touch()


def test_a_result_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    root = write_scores(tmp_path / "scores", "old")
    check_output(root, "output", kind=SCORED, overwrite=True)
    with writing_directory(root, {"type": SCORED}, "output", overwrite=True) as folder:
        assert (root / "parts/scores.csv").read_text() == "old"
        (folder / "new").touch()
    assert sorted(path.name for path in root.iterdir()) == [META, "new"]
    assert list(tmp_path.iterdir()) == [root]


def test_if_the_new_one_fails_the_old_one_stays(tmp_path: Path) -> None:
    root = write_scores(tmp_path / "scores", "old")
    with (
        pytest.raises(KeyboardInterrupt),
        writing_directory(root, {"type": SCORED}, "output", overwrite=True),
    ):
        raise KeyboardInterrupt
    assert (root / "parts/scores.csv").read_text() == "old"
    assert list(tmp_path.iterdir()) == [root]


def test_without_the_option_it_is_named(tmp_path: Path) -> None:
    root = write_scores(tmp_path / "scores", "old")
    with pytest.raises(
        OutputDirectoryError, match=r"holds a finished scored dataset\. `--overwrite` replaces it"
    ):
        check_output(root, "output", kind=SCORED)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (SCORED, lambda root: touch_later(root / "notes.txt"), "notes.txt is newer than its"),
        (SCORED, lambda root: (root / META).unlink(), "it is not a complete scored dataset"),
        (SCORED, lambda root: (root / "manifest.json").touch(), "it is a trained model"),
        (IMAGES, lambda _: None, "says type 'DataFrameDirectory', expected 'ImageDirectory'"),
        (TRAINED, lambda _: None, "it is not a trained model"),
    ],
)
def test_only_one_of_the_kind_as_it_was_written_is_replaced(
    tmp_path: Path, kind: str, change: Callable[[Path], object], message: str
) -> None:
    root = write_scores(tmp_path / "scores", "old")
    change(root)
    with pytest.raises(OutputDirectoryError, match=f"cannot be replaced: .*{message}"):
        check_output(root, "output", kind=kind, overwrite=True)
    assert (root / "parts/scores.csv").exists()


def test_a_file_that_comes_while_the_new_one_is_written_stays(tmp_path: Path) -> None:
    root = write_scores(tmp_path / "scores", "old")
    with (
        pytest.raises(OutputDirectoryError, match=r"notes\.txt is newer"),
        writing_directory(root, {"type": SCORED}, "output", overwrite=True),
    ):
        touch_later(root / "notes.txt")
    assert list(tmp_path.iterdir()) == [root]
    assert (root / "notes.txt").exists()


def test_what_a_kill_between_old_and_new_has_left_is_put_back(tmp_path: Path) -> None:
    root = write_scores(tmp_path / "scores", "old")
    write_scores(replacement_of(root), "new")
    root.rename(tmp_path / "scores.replaced")
    check_output(root, "output", kind=SCORED, overwrite=True)
    assert (root / "parts/scores.csv").read_text() == "old"
    assert list(tmp_path.iterdir()) == [root]


def test_a_folder_that_is_called_like_a_replacement_is_not_touched(tmp_path: Path) -> None:
    root = write_scores(tmp_path / "scores", "old")
    replacement_of(root).mkdir()
    (replacement_of(root) / "mine").touch()
    with pytest.raises(OutputDirectoryError, match=r"scores\.replacement is not empty"):
        check_output(root, "output", kind=SCORED, overwrite=True)
