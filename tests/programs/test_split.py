"""`split`: its command line, two output directories and messages."""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.painting import paint_folders, paint_scene
from tests.programs.program import Ended, assert_refused, run_process, run_program
from train_pytorch_model.formats.image_directory import open_image_directory

FRACTION = (
    'Parameter "Fraction of images in the first output" value should be greater than 0 and less'
    " than 1"
)


def split(images: Path, first: Path, second: Path, *more: str | Path) -> Ended:
    return run_program("split", "--input", images, "--output-1", first, "--output-2", second, *more)


def counts(root: Path) -> list[int]:
    return [int(count) for count in open_image_directory(root, "Dataset").class_counts()]


def lines_of(root: Path) -> list[str]:
    return (root / "images.lst").read_text().splitlines()


def test_every_category_is_split_by_the_fraction(folders: Path, tmp_path: Path) -> None:
    run_program("convert", "--input", folders / "training", "--output", tmp_path / "images")
    first, second = tmp_path / "new/1", tmp_path / "new/2"
    ended = split(tmp_path / "images", first, second, "--fraction", "0.75")
    assert (ended.status, ended.stderr) == (0, "")
    assert "Splitting 12 images into 9 and 3\n" in ended.stdout
    assert f"\n9 images are in {first}\n3 images are in {second};" in ended.stdout
    assert (counts(first), counts(second)) == ([3, 3, 3], [1, 1, 1])
    assert sorted(lines_of(first) + lines_of(second)) == sorted(lines_of(tmp_path / "images"))
    for name in ("_meta.yaml", "_schema.json"):
        assert (first / name).read_bytes() == (tmp_path / "images" / name).read_bytes()


def test_images_without_categories_are_split_with_a_note(folders: Path, tmp_path: Path) -> None:
    ended = split(folders / "training/red", tmp_path / "1", tmp_path / "2", "--fraction", "0.5")
    assert ended.stdout.startswith("Splitting 4 images without categories into 2 and 2\n")


def test_a_table_of_categories_that_is_not_read_is_a_warning(folders: Path, tmp_path: Path) -> None:
    images = shutil.copytree(folders / "training" / "red", tmp_path / "photographs of mine")
    (images / "labels.csv").write_text("file_name,label\n")
    ended = split(images, tmp_path / "first", tmp_path / "second")
    assert "Warning: labels.csv is not read here" in ended.stdout
    assert f"convert --input '{images}' --output images`" in ended.stdout


def test_a_category_in_one_part_only_is_a_warning(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "training", tmp_path / "images")
    for image in sorted((tmp_path / "images/red").iterdir())[1:]:
        image.unlink()
    ended = split(tmp_path / "images", tmp_path / "1", tmp_path / "2")
    assert ended.status == 0
    assert "Warning: Not all parts have images of category\n  'red'\n" in ended.stdout


def test_few_images_are_a_warning_that_offers_fractions_which_suit_them(tmp_path: Path) -> None:
    images = paint_folders(tmp_path / "images", 25)
    ended = split(images, tmp_path / "1", tmp_path / "2", "--fractions", "0.9", "0.1")
    assert "Warning: A category has only 2 images in a part" in ended.stdout
    assert "an accuracy of 80% on them means 43% to 95%\n" in ended.stdout  # of 7 images
    offered = re.search(r"--fractions \S+ \S+ \S+ --output-3", ended.stdout)
    assert offered
    outputs = [tmp_path / name for name in ("training", "validation", "test")]
    ended = split(images, *outputs[:2], *offered[0].split(), outputs[2])
    assert (ended.status, [counts(output) for output in outputs]) == (
        0,
        [[15] * 3, [5] * 3, [5] * 3],
    )
    assert "Warning" not in ended.stdout
    assert "Splitting 75 images into 45, 15 and 15\n" in ended.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--output-3", "3"), "--output-3 needs --fractions, such as --fractions 0.6 0.2 0.2."),
        (
            ("--fractions", "0.6", "0.2", "0.2"),
            "give a number greater than 0 for each of the 2 outputs.",
        ),
        (("--fractions", "0.6", "0.2"), "--fractions 0.6 0.2: give a number greater than 0"),
        (("--fractions", "1.5", "-0.5"), "--fractions 1.5 -0.5: give a number greater than 0"),
        (("--fractions", "nan", "0.5"), "--fractions nan 0.5: give a number greater than 0"),
        (("--fraction", "0.7", "--fractions", "0.6", "0.4"), "are mutually exclusive. Give one."),
    ],
)
def test_fractions_that_do_not_fit_the_outputs_are_refused(
    folders: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    ended = split(folders / "training", tmp_path / "1", tmp_path / "2", *options)
    assert_refused(ended, 2, "ParameterError: ", message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a file that is always full"
)
def test_standard_output_on_a_full_disk_is_an_error(folders: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "train_pytorch_model",
        "split",
        "--input",
        folders / "training",
    ]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*command, "--output-1", tmp_path / "1", "--output-2", tmp_path / "2"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 4
    assert ended.stderr == "Standard output cannot be written: No space left on device.\n"


def test_one_image_is_reported_in_the_singular(folders: Path, tmp_path: Path) -> None:
    ended = split(folders / "training/red", tmp_path / "1", tmp_path / "2", "--fraction", "0.75")
    assert ended.stdout.endswith(
        f"3 images are in {tmp_path / '1'}\n1 image is in {tmp_path / '2'}\n"
    )


def test_the_seed_determines_the_split(folders: Path, tmp_path: Path) -> None:
    found = []
    for place, seed in enumerate((7, 7, 8)):
        out = tmp_path / str(place)
        split(
            folders / "training",
            out / "1",
            out / "2",
            "--fraction",
            "0.5",
            "--seed",
            str(seed),
            "--quiet",
        )
        found.append(lines_of(out / "1"))
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.parametrize("spelling", [("--no-stratified",), ("--stratified", "False")])
def test_the_split_may_ignore_categories(
    folders: Path, tmp_path: Path, spelling: tuple[str, ...]
) -> None:
    found = set()
    for seed in range(8):
        out = tmp_path / str(seed)
        options = ("--seed", str(seed), "--fraction", "0.5", *spelling)
        ended = split(folders / "training", out / "1", out / "2", *options)
        assert ended.status == 0, ended.stderr
        found.add(tuple(counts(out / "1")))
    assert {sum(each) for each in found} == {6}
    assert found != {(2, 2, 2)}


def test_data_sets_in_a_folder_and_folders_without_images_are_reported(
    folders: Path, tmp_path: Path
) -> None:
    ended = split(folders, tmp_path / "1", tmp_path / "2")
    inside = f"Name one data set, such as '{folders / 'training'}'."
    assert_refused(
        ended, 3, "InvalidDatasetError: ", "its folder 'training' is a data set of its own", inside
    )
    (tmp_path / "in/empty").mkdir(parents=True)
    for name in ("1.png", "2.png"):
        (tmp_path / "in/full").mkdir(exist_ok=True)
        shutil.copy(folders / "training/red" / name, tmp_path / "in/full")
    ended = split(tmp_path / "in", tmp_path / "1", tmp_path / "2", "--quiet")
    assert ended.status == 0
    warning = (
        f'Warning: Input image directory "{tmp_path}/in": folders without an image are no'
        " categories:\n  'empty'\n"
    )
    assert ended.stderr.startswith(warning)


@pytest.mark.parametrize("fraction", ["0", "1", "-0.5", "1.5", "nan", "inf"])
def test_a_fraction_out_of_range_is_refused(folders: Path, tmp_path: Path, fraction: str) -> None:
    ended = split(folders / "training", tmp_path / "1", tmp_path / "2", "--fraction", fraction)
    assert_refused(ended, 2, f"ParameterError: {FRACTION}: --fraction is {float(fraction)}.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("a", "a", "--output-2 a is the same as --output-1 a."),
        ("a", "./b/../a", "--output-2 b/../a is the same as --output-1 a."),
        ("a", "a/b", "--output-2 a/b is inside --output-1 a."),
        ("a/b", "a", "--output-1 a/b is inside --output-2 a."),
        ("in/a", "b", "--output-1 in/a is inside --input in."),
        ("a", "in/b", "--output-2 in/b is inside --input in."),
        ("in", "b", "--output-1 in is the same as --input in."),
        ("link/a", "b", "--output-1 link/a is inside --input in."),
        ("a", "full", "--output-2 full is not empty: it holds mine."),
    ],
)
def test_conflicting_outputs_are_refused_before_anything_is_written(
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run_program("convert", "--input", folders / "training", "--output", "in")
    Path("link").symlink_to("in")
    Path("full").mkdir()
    Path("full/mine").touch()
    before = sorted(tmp_path.rglob("*"))
    assert_refused(
        split(Path("in"), Path(first), Path(second)), 2, f"OutputDirectoryError: {message}"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_or_too_small_dataset_is_refused(tmp_path: Path) -> None:
    ended = split(tmp_path / "none", tmp_path / "1", tmp_path / "2")
    assert_refused(
        ended,
        3,
        f'InvalidDatasetError: Input image directory "{tmp_path}/none" is not valid, reason:',
    )
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/1.png").touch()
    ended = split(tmp_path / "in", tmp_path / "1", tmp_path / "2")
    assert_refused(
        ended, 3, "InvalidDatasetError: ", "it has too few images: each part of a split needs one."
    )


def test_two_commands_with_the_same_outputs_leave_those_of_one(
    folders: Path, tmp_path: Path
) -> None:
    command: list[str | Path] = [sys.executable, "-m", "train_pytorch_model", "split"]
    command += ["--input", folders / "training"]
    first, second = tmp_path / "1", tmp_path / "2"
    for _ in range(3):
        with ThreadPoolExecutor() as pool:
            starts = [
                pool.submit(run_process, *command, "--output-1", one, "--output-2", other)
                for one, other in ((first, second), (second, first))
            ]
            ends = [start.result() for start in starts]
        assert sorted(end.status for end in ends) == [0, 2], ends
        assert sum(end.stderr.count("OutputDirectoryError: ") for end in ends) == 1
        assert sorted((counts(first), counts(second))) == [[1, 1, 1], [3, 3, 3]]
        shutil.rmtree(first)
        shutil.rmtree(second)


def test_twins_and_groups_stay_in_one_part(tmp_path: Path) -> None:
    """Twenty pictures, each twice, of ten patients: no picture and no patient is in both parts."""
    for index in range(20):
        folder = tmp_path / "images" / ("red", "blue")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("x", "again"):
            paint_scene(index).save(folder / f"p{index // 2}_{index}_{name}.png")

    def pictures(part: Path, stem: str) -> set[str]:
        originals = [json.loads(row)["image_info"]["original"] for row in lines_of(part)]
        return {re.sub(stem, r"\1", original) for original in originals}

    ended = split(tmp_path / "images", tmp_path / "1", tmp_path / "2", "--fraction", "0.5")
    assert "20 images look like others and stay with them" in ended.stdout
    one, other = (pictures(tmp_path / part, r".*/p\d+_(\d+)_.*") for part in ("1", "2"))
    assert len(one) == len(other) == 10
    assert not one & other
    ended = split(tmp_path / "images", tmp_path / "3", tmp_path / "4", "--group-by", r"p\d+_")
    assert "10 groups by p\\d+_, with twins 8 and 2 in the parts" in ended.stdout
    one, other = (pictures(tmp_path / part, r".*/p(\d+)_.*") for part in ("3", "4"))
    assert (len(one), len(other)) == (8, 2)
    assert not one & other
    assert_refused(
        split(tmp_path / "images", tmp_path / "5", tmp_path / "6", "--group-by", "("),
        2,
        "ParameterError: --group-by '(' is not a regular expression",
    )
