"""What `score` takes: images one by one, at any depth, in an archive, damaged, of unknown
categories.
"""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.painting import paint_folders
from tests.programs.conftest import Trained
from tests.programs.program import assert_refused, run_program, score


def names_in(output: Path) -> list[str]:
    return list(pd.read_csv(output / "scores.csv")["file_name"])


def test_a_single_photograph_is_scored_and_shown(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    ended = score(trained.output, folders / "validation/red/100.png", tmp_path / "scores")
    assert (ended.status, ended.stderr) == (0, "")
    scores = pd.read_csv(tmp_path / "scores/scores.csv")
    assert list(scores["file_name"]) == ["100.png"]
    label = scores["Scored Labels"][0]
    percent = f"{scores[f'Scored Probabilities_{label}'][0]:.1%}"
    assert [line.split() for line in ended.stdout.splitlines() if "100.png" in line] == [
        ["100.png", label, percent]
    ]


def test_folders_in_folders_are_scored_without_categories(trained: Trained, tmp_path: Path) -> None:
    images = paint_folders(tmp_path / "images", 2)
    (images / "2024/may").mkdir(parents=True)
    shutil.copy(images / "red/0.png", images / "2024/may/1.png")
    shutil.copy(images / "red/0.png", images / "2.png")
    ended = score(trained.output, images, tmp_path / "scores")
    assert ended.status == 0
    assert "Warning" in ended.stdout
    assert "images at several depths" in ended.stdout
    assert "Accuracy" not in ended.stdout
    colours = [f"{colour}/{index}.png" for colour in ("blue", "green", "red") for index in (0, 1)]
    assert sorted(names_in(tmp_path / "scores")) == sorted(["2.png", "2024/may/1.png", *colours])


def test_data_sets_in_a_folder_are_scored_as_its_images(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    ended = score(trained.output, folders, tmp_path / "scores", "--quiet")
    assert ended.status == 0
    assert "validation/red/100.png" in names_in(tmp_path / "scores")


def test_an_empty_folder_inside_a_category_changes_nothing(
    trained: Trained, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 2)
    (images / "red/empty").mkdir()
    ended = score(trained.output, images, tmp_path / "scores")
    assert "of 6 images\n" in ended.stdout  # an accuracy


@pytest.mark.parametrize("verb", ["score", "evaluate"])
def test_an_archive_is_unpacked_beside_the_output_and_removed(
    trained: Trained, folders: Path, tmp_path: Path, verb: str
) -> None:
    archive = shutil.make_archive(str(tmp_path / "images"), "zip", folders / "validation")
    output = {"score": "--scored-dataset", "evaluate": "--output"}[verb]
    ended = run_program(
        verb, "--trained-model", trained.output, "--dataset", archive, output, tmp_path / "out"
    )
    assert (ended.status, ended.stderr) == (0, "")
    assert "of 9 images" in ended.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images.zip", "out"]


def test_a_damaged_archive_is_refused(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"PK\3\4 and no more")
    ended = score(trained.output, tmp_path / "images.zip", tmp_path / "scores")
    assert_refused(ended, 3, "InvalidDatasetError: ", "images.zip", "damaged or cut short")
    assert [path.name for path in tmp_path.iterdir()] == ["images.zip"]


def test_images_of_unknown_categories_are_counted_and_said_not_to_count(
    trained: Trained, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 2)
    (images / "green").rename(images / "teal")
    ended = score(trained.output, images, tmp_path / "scores", "--quiet")
    assert ended.stderr == (
        "Warning: 2 images are of a category that the model does not know, and not part of the"
        " accuracy:\n"
        "  'teal': 2\n"
    )
    ended = score(trained.output, images, tmp_path / "again")
    assert "of 4 images\n" in ended.stdout
    whole = next((images / "teal").iterdir())
    (images / "teal/cut.png").write_bytes(whole.read_bytes()[:-30])
    ended = score(trained.output, images, tmp_path / "cut", "--quiet")
    assert "1 unreadable image is left out" in ended.stderr
    assert "  'teal': 2\n" in ended.stderr


def test_names_before_split_are_in_the_csv(trained: Trained, folders: Path, tmp_path: Path) -> None:
    run_program(
        "convert", "--input", folders / "validation", "--output", tmp_path / "images", "--quiet"
    )
    score(trained.output, tmp_path / "images", tmp_path / "scores")
    scores = pd.read_csv(tmp_path / "scores/scores.csv")
    assert scores["file_name"][0] == "image/0_0.png"
    assert scores["original"][0] == "blue/100.png"


def test_scoring_goes_on_over_any_number_of_unreadable_images(
    trained: Trained, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 12)
    whole = (images / "red/0.png").read_bytes()
    for index in range(12):
        (images / f"green/{index}.png").write_bytes(b"not an image")
        (images / f"blue/{index}.png").write_bytes(whole[: len(whole) // 2])  # its header is good
    ended = score(trained.output, images, tmp_path / "scores")
    assert ended.status == 0
    assert "24 unreadable images are left out:" in ended.stdout
    assert len(pd.read_csv(tmp_path / "scores/bad_images.csv")) == 24
    assert names_in(tmp_path / "scores") == [f"red/{index}.png" for index in range(12)]

    shutil.rmtree(images / "red")
    ended = score(trained.output, images, tmp_path / "none")
    assert_refused(ended, 3, "InvalidDatasetError: ", "none of its images can be read.")
    assert not (tmp_path / "none").exists()
