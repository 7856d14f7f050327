"""The table of a fitted model's images, and what has changed since it was written."""

from pathlib import Path

import pytest
from tests.painting import paint, paint_folders

from train_pytorch_model.datasets.one_folder import open_parts
from train_pytorch_model.datasets.split_table import describe_changes, read_split, write_split


def test_images_that_were_added_removed_or_have_another_category_are_counted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "photographs"
    paint_folders(folder, 10, ("red", "blue"), size=(4, 4))
    write_split(tmp_path / "split.csv", open_parts(folder, seed=1))
    earlier = read_split(tmp_path / "split.csv")
    assert len(earlier) == 20
    assert describe_changes(earlier, open_parts(folder, seed=2)) == ""
    (folder / "red/1.png").unlink()
    for name in ("new", "newer"):
        paint("blue", 20, (4, 4)).save(folder / f"blue/{name}.png")
    assert (
        describe_changes(earlier, open_parts(folder, seed=1)) == "2 images added, 1 image removed"
    )


@pytest.mark.parametrize("content", ["", "a,b\n", "file_name,category,part\nx\n", '"'])
def test_a_table_that_cannot_be_read_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "split.csv").write_text(content)
    assert read_split(tmp_path / "split.csv") == []
