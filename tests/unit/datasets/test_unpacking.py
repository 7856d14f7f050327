"""What `fit` unpacks is that of the archive as it is, or the user's, who is told what to do."""

import os
import shutil
from pathlib import Path

import pytest
from tests.painting import paint_folders

from train_pytorch_model.datasets import unpacking
from train_pytorch_model.datasets.unpacking import keep_unpacked
from train_pytorch_model.errors import InvalidDatasetError, OutputDirectoryError
from train_pytorch_model.formats.image_directory import open_image_directory


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return pack(tmp_path, ("blue", "red"))


def pack(root: Path, categories: tuple[str, ...], size: tuple[int, int] = (4, 4)) -> Path:
    """Write an archive of one image per category."""
    folder = paint_folders(root / "folder", 1, categories, size)
    archive = shutil.make_archive(str(root / "flowers"), "zip", folder)
    shutil.rmtree(folder)
    return Path(archive)


def unpack(archive: Path) -> tuple[str, ...]:
    """Return the categories of what is unpacked; nothing else of it is listed."""
    images = archive.with_name("flowers-images")
    keep_unpacked(archive, images)
    opened = open_image_directory(images, "Dataset")
    assert opened.ignored == {}
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, images.name}
    return opened.categories


def test_an_archive_that_has_changed_is_unpacked_anew(archive: Path) -> None:
    assert unpack(archive) == ("blue", "red")
    pack(archive.parent, ("green", "red"))
    assert unpack(archive) == ("green", "red")


def test_archives_of_the_same_names_and_other_pixels_are_told_apart(archive: Path) -> None:
    images = archive.with_name("flowers-images")
    first = keep_unpacked(archive, images)
    assert keep_unpacked(archive, images) == first
    pack(archive.parent, ("blue", "red"), size=(5, 4))
    assert keep_unpacked(archive, images) != first


def test_an_archive_that_has_not_changed_is_not_unpacked_again(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(archive)
    monkeypatch.setattr(unpacking, "extracted", None)
    assert unpack(archive) == ("blue", "red")
    os.utime(archive, (1, 1))  # as a copy of the same content has it
    assert unpack(archive) == ("blue", "red")


def test_images_that_the_user_has_changed_are_not_replaced(archive: Path) -> None:
    unpack(archive)
    images = archive.with_name("flowers-images")
    shutil.move(images / "red/0.png", images / "blue/1.png")
    assert unpack(archive) == ("blue",)
    pack(archive.parent, ("green", "red"))
    with pytest.raises(OutputDirectoryError, match=r"has changed since .* and so have files in"):
        unpack(archive)
    assert (images / "blue/1.png").exists()


def test_a_folder_of_something_else_is_not_taken_for_the_archive(archive: Path) -> None:
    paint_folders(archive.with_name("flowers-images"), 1, ("green",))
    with pytest.raises(OutputDirectoryError, match=r"is there already.*rename or delete"):
        unpack(archive)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flowers.txt").write_text("daisy")
    with pytest.raises(InvalidDatasetError, match=r"not an archive.*a table of images"):
        keep_unpacked(tmp_path / "flowers.txt", tmp_path / "flowers-images")
    assert not (tmp_path / "flowers-images").exists()
