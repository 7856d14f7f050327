"""Plain folders: which of them are categories, and the images in them at any depth."""

import os
import sys
from pathlib import Path

import pytest

from train_pytorch_model.formats.listing import (
    LINKED,
    LOOSE,
    UNLABELLED,
    natural_order,
)
from train_pytorch_model.formats.plain_folders import read_plain_folders
from train_pytorch_model.formats.reading import MalformedFileError


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_folders_are_categories_in_natural_order(tmp_path: Path) -> None:
    touch(tmp_path, "class10/b.jpg", "class2/img10.png", "class2/img9.png", "Class1/a.webp")
    listing = read_plain_folders(tmp_path)
    assert listing.categories == ("Class1", "class2", "class10")
    assert list(listing.file_names) == [
        "Class1/a.webp",
        "class2/img9.png",
        "class2/img10.png",
        "class10/b.jpg",
    ]
    assert listing.class_indices.tolist() == [0, 1, 1, 2]
    assert listing.columns == ("id", "category")
    assert listing.ignored == {}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        (["b", "A", "a", "B"], ["A", "a", "B", "b"]),
        (["a01", "a1", "a001"], ["a001", "a01", "a1"]),
        (["x", "10", "9x", ""], ["", "9x", "10", "x"]),
        (["²", "٣", "2"], ["2", "٣", "²"]),
    ],
)
def test_names_sort_in_natural_order(names: list[str], expected: list[str]) -> None:
    assert sorted(names, key=natural_order) == expected


@pytest.mark.parametrize(
    "suffix",
    [
        ".jpg",
        ".JPEG",
        ".jfif",
        ".Jpe",
        ".png",
        ".Ppm",
        ".bmp",
        ".pgm",
        ".tif",
        ".TIFF",
        ".avif",
        ".HEIC",
    ],
)
def test_image_suffixes_are_case_insensitive(tmp_path: Path, suffix: str) -> None:
    touch(tmp_path, f"a/x{suffix}", "b/y.png")
    assert read_plain_folders(tmp_path).file_names[0] == f"a/x{suffix}"


@pytest.mark.parametrize(
    "name",
    [
        "__MACOSX",
        "@eaDir",
        "lost+found",
        "$RECYCLE.BIN",
        ".ipynb_checkpoints",
        "@Recycle",
        "__pycache__",
    ],
)
def test_folders_of_the_system_are_not_categories(tmp_path: Path, name: str) -> None:
    listing = read_plain_folders(touch(tmp_path, "a/1.jpg", "b/2.jpg", f"{name}/._1.jpg"))
    assert listing.categories == ("a", "b")
    assert listing.ignored == {"hidden entries": 1}


def test_files_at_the_root_without_folders_are_unlabelled(tmp_path: Path) -> None:
    listing = read_plain_folders(touch(tmp_path, "b.png", "a10.png", "a9.png"))
    assert list(listing.file_names) == ["a9.png", "a10.png", "b.png"]
    assert listing.categories == ()
    assert listing.class_indices.tolist() == [UNLABELLED] * 3
    assert listing.columns == ("id",)


def test_skipped_entries_are_counted_by_kind(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "a/x.png",
        "a/notes.txt",
        "a/README",
        "a/.DS_Store",
        "a/deeper/y.png",
        "a/phone.heic",
        "a/.far.jpg.icloud",
        "b/y.png",
        "loose.png",
        "loose.csv",
        ".hidden/z.png",
    )
    (tmp_path / "secret.png").touch()
    (tmp_path / "a/circle.png").symlink_to("circle.png")
    (tmp_path / "a/out.png").symlink_to("/etc/hostname")
    (tmp_path / "a/folder.png").symlink_to("deeper")
    os.mkfifo(tmp_path / "a/fifo.png")
    listing = read_plain_folders(tmp_path)
    assert list(listing.file_names) == ["a/deeper/y.png", "a/phone.heic", "a/x.png", "b/y.png"]
    assert listing.ignored == {
        "hidden entries": 2,
        "special files": 1,
        "links to folders or to nothing": 2,
        LINKED: 1,
        "files of another kind (.csv)": 1,
        LOOSE: 2,
        "files of another kind (no suffix)": 1,
        "files of another kind (.txt)": 1,
        "placeholders of iCloud, whose files have to be downloaded first": 1,
    }


@pytest.mark.parametrize("target", ["a", "/usr"])
def test_a_link_in_place_of_a_category_is_refused_by_name(tmp_path: Path, target: str) -> None:
    touch(tmp_path, "a/x.png", "b/y.png")
    (tmp_path / "linked").symlink_to(target)
    with pytest.raises(
        MalformedFileError, match=r"these are links:\n  'linked'\n`cp -rL` makes a copy"
    ):
        read_plain_folders(tmp_path)


def test_links_to_files_inside_are_followed(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.png", "b/y.png")
    (tmp_path / "b/same.png").symlink_to("../a/x.png")
    assert list(read_plain_folders(tmp_path).file_names) == ["a/x.png", "b/same.png", "b/y.png"]


def test_a_folder_without_an_image_is_no_category(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.png", "b/y.png", "raw/1.cr2", "notes/deep/README")
    (tmp_path / "empty").mkdir()
    listing = read_plain_folders(tmp_path)
    assert listing.categories == ("a", "b")
    assert listing.class_indices.tolist() == [0, 1]
    assert listing.notes == (
        "folders without an image are no categories:\n  'empty'\n  'notes'\n  'raw'",
    )
    assert listing.ignored == {
        "files of another kind (.cr2)": 1,
        "files of another kind (no suffix)": 1,
    }


def test_a_known_category_may_be_empty(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.png").joinpath("empty").mkdir()
    listing = read_plain_folders(tmp_path, known=("a", "empty"))
    assert (listing.categories, listing.notes) == (("a",), ())


def test_images_beside_folders_without_images_have_no_category(tmp_path: Path) -> None:
    listing = read_plain_folders(touch(tmp_path, "1.jpg", "raw/1.cr2"))
    assert (listing.categories, list(listing.file_names)) == ((), ["1.jpg"])


def test_category_names_may_use_any_script(tmp_path: Path) -> None:
    touch(tmp_path, "猫/1.png", "großer Hund/1.png", "🙂/1.png")
    assert set(read_plain_folders(tmp_path).categories) == {"猫", "großer Hund", "🙂"}


def test_category_names_that_differ_only_in_unicode_form_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "caf\u00e9/1.png", "cafe\u0301/1.png")
    with pytest.raises(MalformedFileError, match=r"same name:\n  caf\u00e9\nThey are written in"):
        read_plain_folders(tmp_path)


@pytest.mark.skipif(
    sys.platform != "linux", reason="other file systems refuse such names themselves"
)
def test_category_names_must_be_utf8_but_file_names_need_not(tmp_path: Path) -> None:
    touch(tmp_path, "a/caf\udce9.png", "b/1.png")
    assert list(read_plain_folders(tmp_path).file_names) == ["a/caf\udce9.png", "b/1.png"]
    touch(tmp_path, "caf\udce9/1.png")
    with pytest.raises(MalformedFileError, match=r"category 'caf\\udce9' is not valid UTF-8\."):
        read_plain_folders(tmp_path)


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        MalformedFileError, match=r"^gone cannot be listed: No such file or directory\.$"
    ):
        read_plain_folders(tmp_path / "gone")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            ["new/1.jpg", "training/_meta.yaml", "training/image/2.jpg"], id="an ImageDirectory"
        ),
        pytest.param(["train/cat/1.jpg", "val/cat/2.jpg"], id="class folders"),
        pytest.param(["loose/1.jpg", "train/cat/1.jpg"], id="beside a folder of images"),
    ],
)
def test_a_folder_that_is_a_data_set_is_not_a_category(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(
        MalformedFileError, match=r"its folder 'train(ing)?' is a data set of its own, not a"
    ):
        read_plain_folders(touch(tmp_path, *names))


def test_folders_in_a_category_are_read_at_any_depth(tmp_path: Path) -> None:
    listing = read_plain_folders(
        touch(tmp_path, "cat/2.jpg", "cat/garden/10.jpg", "cat/garden/may/9.jpg", "dog/yard/1.jpg")
    )
    assert listing.categories == ("cat", "dog")
    assert list(listing.file_names) == [
        "cat/2.jpg",
        "cat/garden/10.jpg",
        "cat/garden/may/9.jpg",
        "dog/yard/1.jpg",
    ]
    assert listing.class_indices.tolist() == [0, 0, 0, 1]
    assert (listing.ignored, listing.notes) == ({}, ())


def test_folders_that_are_the_same_in_each_category_may_be_meant(tmp_path: Path) -> None:
    names = [f"{year}/{name}/1.jpg" for year in (2023, 2024) for name in ("cat", "dog")]
    listing = read_plain_folders(touch(tmp_path, *names))
    assert listing.categories == ("2023", "2024")
    assert listing.notes == (
        "all images are in folders inside folders. The outer ones are the categories: '2023',"
        " '2024'. If the inner ones are meant, 'cat', 'dog', put the images of each of these into"
        " one folder.",
    )


@pytest.mark.parametrize(
    ("names", "start"),
    [
        pytest.param(["photos/cat/1.jpg", "photos/dog/x/1.jpg", "LICENSE"], "photos/", id="one"),
        pytest.param(["a/b/cat/1.jpg", "a/b/dog/1.jpg", "a/README.md"], "a/b/", id="two"),
        pytest.param(["a/cat/1.jpg", "a/dog/1.jpg", ".git/x.png"], "a/", id="hidden ones beside"),
    ],
)
def test_a_folder_that_only_holds_the_folders_of_categories_is_seen_through(
    tmp_path: Path, names: list[str], start: str
) -> None:
    listing = read_plain_folders(touch(tmp_path, *names))
    assert listing.categories == ("cat", "dog")
    assert all(name.startswith(start) for name in listing.file_names)
    assert listing.notes == (f"the categories are the folders in {start[:-1]!r}.",)


@pytest.mark.parametrize(
    ("names", "known"),
    [
        pytest.param(["cat/garden/1.jpg"], (), id="one folder in it"),
        pytest.param(["cat/garden/1.jpg", "cat/yard/1.jpg"], ("cat", "dog"), id="known"),
        pytest.param(["cat/garden/1.jpg", "cat/yard/1.jpg", "cat/1.jpg"], (), id="images in it"),
        pytest.param(["cat/a/1.jpg", "cat/b/1.jpg", "1.jpg"], (), id="images beside it"),
        pytest.param(["cat/a/1.jpg", "cat/b/1.jpg", "t.csv"], (), id="a table beside it"),
    ],
)
def test_a_category_with_folders_is_not_seen_through(
    tmp_path: Path, names: list[str], known: tuple[str, ...]
) -> None:
    listing = read_plain_folders(touch(tmp_path, *names), known)
    assert listing.categories == ("cat",)
    assert not (known and listing.notes)


def test_hidden_folders_in_a_category_are_not_looked_into(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/2.jpg", "b/@eaDir/1.jpg", "b/.thumbs/1.jpg")
    listing = read_plain_folders(tmp_path)
    assert list(listing.file_names) == ["a/1.jpg", "b/2.jpg"]
    assert listing.categories == ("a", "b")
    assert listing.ignored == {"hidden entries": 2}
