"""Paths that do not exist: each common mistake has its own sentence."""

import sys
from pathlib import Path

import pytest

from train_pytorch_model.commands import program
from train_pytorch_model.commands.verbs import VERBS
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.datasets.one_folder import open_parts
from train_pytorch_model.errors import InvalidDatasetError, UserError
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.formats.transformation_directory import open_transformation
from train_pytorch_model.inputs.check_model_options import check_model_options
from train_pytorch_model.inputs.scoring import open_images_at_any_depth
from train_pytorch_model.stories.fit import beside


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.org/flowers.zip", "it is a URL, and nothing is fetched"),
        ("s3://bucket/flowers", "it is a URL, and nothing is fetched"),
        ("azureml:flowers:1", "`submit` takes such a name"),
        ("azureml://datastores/store/paths/flowers", "`submit` takes such a name"),
        ("file:///data/flowers", "Name the path, '/data/flowers'."),
        ("~/flowers", "write '/home/me/flowers'"),
        ("$DATA/flowers", "a variable that the shell has not replaced"),
        ("%DATA%", "a variable that the shell has not replaced"),
        ("flow*", "a wildcard"),
        ("data\\flowers", "separated by slashes: 'data/flowers'"),
        ("C:\\flowers", "separated by slashes"),
        ("data/flowers\r", "without them it is 'data/flowers'"),
        ("data/flower", "Did you mean 'data/flowers'?"),
        ("Data/flowers", "Did you mean 'data/flowers'?"),
        ("data/flowers/trainig", "Did you mean 'data/flowers/training'?"),
        ("data/flowers/xyz/w", "'xyz' in it"),
        ("link", "a link to 'nowhere'"),
    ],
)
def test_what_was_meant_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    Path("data/flowers/training").mkdir(parents=True)
    Path("link").symlink_to("nowhere")
    assert expected in explain_missing(Path(text))
    with pytest.raises(InvalidDatasetError) as raised:
        open_image_directory(Path(text), "Training dataset")
    assert expected in str(raised.value)


def test_an_absolute_path_is_answered_with_one(tmp_path: Path) -> None:
    (tmp_path / "flowers").mkdir()
    assert f"Did you mean {str(tmp_path / 'flowers')!r}?" in explain_missing(tmp_path / "flower")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "/", "."])
def test_any_path_has_an_answer(name: str) -> None:
    assert explain_missing(Path(name)).startswith("there is no such directory.")


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".jpg"])
def test_what_cannot_be_asked_about_is_missing(name: str) -> None:
    """Of a name too long, and below a folder that others may not read, `Path.exists` raises."""
    path = Path(name)
    for open_it in (
        lambda: open_parts(path, 1),
        lambda: open_images_at_any_depth(path, "Dataset"),
        lambda: open_model_directory(path, "Untrained model"),
        lambda: open_transformation(path, "Transformation"),
        lambda: check_model_options(ModelOptions(weights_file=path)),
    ):
        with pytest.raises(UserError, match="there is no such"):
            open_it()
    assert beside(path, "model") == Path(f"{name}-model")


@pytest.mark.parametrize("name", ["new.jpg", "new.zip"])
def test_a_file_is_missed_as_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDatasetError, match=r"there is no such file or directory\."):
        open_images_at_any_depth(tmp_path / name, "Dataset")


@pytest.mark.parametrize(
    "arguments", [["--input", "", "--output", "x"], ["--output", "x", "--input="]]
)
def test_an_empty_value_is_no_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """`Path("")` is the current directory."""
    monkeypatch.setattr(sys, "argv", ["prog", "convert", *arguments])
    with pytest.raises(SystemExit) as ended:
        program.run_verbs(VERBS, "prog", "")
    assert ended.value.code == 2
    assert "--input is empty. Is a shell variable not set?" in capsys.readouterr().err
