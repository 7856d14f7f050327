"""A trained model takes the place of another: only of one that is whole, and only when it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.formats.replacing import check_replaceable, replace_directory
from train_pytorch_model.formats.trained_directory import EVALUATION, write_manifest


def write_model(root: Path, content: str) -> Path:
    """Write a whole directory with an evaluation in it."""
    (root / "code/__pycache__").mkdir(parents=True)
    (root / "model").write_text(content)
    write_manifest(root, {})
    (root / META).touch()
    (root / "code/__pycache__/serving.pyc").touch()  # which Python writes later
    (root / EVALUATION).mkdir()
    for name in ("metrics.json", "compared.json", "curves.csv", "co_occurrence.csv"):
        (root / EVALUATION / name).touch()
    return root


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "notes.txt").touch(), "notes.txt is not a file of the model"),
        (lambda root: (root / "code/a.py").touch(), "code/a.py is not a file of the model"),
        (
            lambda root: (root / EVALUATION / "mine.csv").touch(),
            "evaluation/mine.csv is not a file of the model",
        ),
        (lambda root: (root / "link").symlink_to("model"), "link is not a file of the model"),
        (lambda root: (root / "model").write_text("x"), "model has changed since it was written"),
        (lambda root: (root / META).unlink(), "it is not a complete model"),
        (lambda root: (root / INCOMPLETE).touch(), "it is not a complete model"),
        (lambda root: (root / "manifest.json").write_text("{}"), "is not a file of the model"),
    ],
)
def test_only_a_model_as_this_program_wrote_it_is_replaceable(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    root = write_model(tmp_path / "model", "old")
    check_replaceable(root, "output")
    change(root)
    with pytest.raises(OutputDirectoryError, match=f"cannot be replaced: .*{message}"):
        check_replaceable(root, "output")


def test_the_old_model_stays_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_model(tmp_path / "model", "old")
    new = write_model(tmp_path / "model.run/replacement", "new")
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path == new:
            raise OSError
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError):  # noqa: PT011
        replace_directory(root, new)
    assert (root / "model").read_text() == "old"
    monkeypatch.undo()
    replace_directory(root, new)
    assert (root / "model").read_text() == "new"
    assert list((tmp_path / "model.run").iterdir()) == []
