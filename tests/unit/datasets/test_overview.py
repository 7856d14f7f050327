"""The table of what `fit` has understood."""

from pathlib import Path

from tests.painting import encode, paint, paint_folders

from train_pytorch_model.datasets.one_folder import open_parts
from train_pytorch_model.datasets.overview import describe_parts


def test_the_table_counts_the_images_of_each_part_by_category(tmp_path: Path) -> None:
    for name, count in (("train", 3), ("val", 2), ("test", 1)):
        paint_folders(tmp_path / name, count, ("blue", "red"), size=(4, 4))
    assert list(describe_parts(open_parts(tmp_path, seed=1))) == [
        "Categories from the names of the folders:",
        "         training  validation       test",
        "  blue          3           2          1",
        "  red           3           2          1",
    ]


def test_of_many_categories_the_largest_and_the_smallest_are_shown(tmp_path: Path) -> None:
    for number in range(30):
        folder = tmp_path / f"{'x' * 100}\n{number:02}"
        folder.mkdir()
        for index in range(4 + number):
            data = encode(paint("red", 100 * number + index, size=(9, 9)))
            (folder / f"{index}.png").write_bytes(data)
    lines = list(describe_parts(open_parts(tmp_path, seed=1)))
    assert len(lines) == 2 + 6 + 1 + 6
    assert lines[8] == "  … 18 categories of 10 to 27 images …"
    assert all(len(line) <= 80 and "\n" not in line for line in lines)
