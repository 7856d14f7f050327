"""The paths that `fit` gives what it makes; tests/programs/test_fit.py runs it."""

import shutil
from pathlib import Path

import pytest
from tests.logs import warnings_in
from tests.painting import paint_folders

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.stories.fit import beside, fit


@pytest.mark.parametrize("name", ["photographs", "photographs.2024"])
def test_what_is_made_of_a_folder_has_its_whole_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert beside(folder, "model") == tmp_path / f"{name}-model"


def test_what_is_made_of_a_file_has_its_name_without_the_endings(tmp_path: Path) -> None:
    archive = tmp_path / "flowers.tar.gz"
    archive.touch()
    assert beside(archive, "images") == tmp_path / "flowers-images"


def test_a_folder_without_a_name_is_named_by_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flowers" / "red").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "flowers" / "red")
    assert beside(Path(".."), "model") == tmp_path / "flowers-model"
    assert beside(Path(), "model") == tmp_path / "flowers" / "red-model"


def test_a_model_is_not_written_among_the_unpacked_images(tmp_path: Path) -> None:
    archive = tmp_path / "flowers.zip"
    archive.touch()
    options = FitOptions(output=tmp_path / "flowers-images/model")
    with pytest.raises(OutputDirectoryError, match=r"inside .*flowers-images\."):
        fit(archive, options)


def test_names_that_may_not_be_meant_are_told_with_the_table_of_categories(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = paint_folders(tmp_path / "flowers", 3)
    shutil.copytree(folder / "blue", folder / "Blue ")
    output = tmp_path / "theirs"
    output.mkdir()
    (output / "file").touch()
    with caplog.at_level("INFO"), pytest.raises(OutputDirectoryError):
        fit(folder, FitOptions(output=output))  # which is refused after the table
    (warning,) = warnings_in(caplog)
    assert "'blue' and 'Blue '" in warning
