"""What `predict` of a model takes."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.painting import encode, paint

from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inference.given_images import given_images, read_image

FRAMING = Framing(8, 8, 1.0)
PIXELS = np.asarray(paint("red", 1, (12, 10)))
FILE = encode(paint("red", 1, (12, 10)), "PNG")
TENSOR = torch.from_numpy(PIXELS.copy())


def read(images: object) -> list[tuple[str, np.ndarray | str]]:
    """The name of each image, and its pixels or why it has none."""
    found: list[tuple[str, np.ndarray | str]] = []
    with for_command_line(False):
        for given in given_images(images):
            image = read_image(given, FRAMING)
            found.append((given.name, image if isinstance(image, str) else np.asarray(image)))
    return found


def pixels_of(images: object) -> list[np.ndarray]:
    """The pixels of images that can all be read."""
    pixels = [image for _, image in read(images)]
    assert not any(isinstance(image, str) for image in pixels), pixels
    return pixels  # type: ignore[return-value]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(FILE)
    return tmp_path / "a.png"


EXPECTED = pixels_of(PIXELS)[0]


@pytest.mark.parametrize(
    "image",
    [
        FILE,
        bytearray(FILE),
        memoryview(FILE),
        io.BytesIO(FILE),
        paint("red", 1, (12, 10)),
        PIXELS.transpose(2, 0, 1),
        PIXELS[None],
        TENSOR,
        TENSOR.permute(2, 0, 1) / 255,
        (TENSOR / 255).requires_grad_(),
        (TENSOR / 255).bfloat16()[None],
    ],
    ids=lambda image: type(image).__name__,
)
def test_one_image_has_many_forms(image: object) -> None:
    ((name, pixels),) = read(image)
    assert name in ("0", "0[0]")
    np.testing.assert_array_equal(pixels, EXPECTED)


def test_an_open_file_is_read_from_its_beginning(path: Path) -> None:
    with path.open("rb") as file:
        file.read()
        np.testing.assert_array_equal(pixels_of(file)[0], EXPECTED)


@pytest.mark.parametrize(
    "several",
    [
        lambda path: [path, str(path)],
        lambda path: (path, path),
        lambda path: (name for name in [path, path]),
        lambda path: map(str, [path, path]),
        lambda path: pd.Series([str(path)] * 2),
        lambda path: pd.Series([path] * 2, index=[7, 9]),
        lambda path: pd.Index([str(path), str(path)]),
        lambda path: np.array([str(path)] * 2),
        lambda _: np.stack([PIXELS, PIXELS]),
        lambda _: [PIXELS[None], TENSOR[None]],
    ],
    ids=[
        "list",
        "tuple",
        "generator",
        "map",
        "Series",
        "its index",
        "Index",
        "str",
        "batch",
        "batches",
    ],
)
def test_several_images_have_many_forms(several: Any, path: Path) -> None:
    first, second = pixels_of(several(path))
    np.testing.assert_array_equal(first, EXPECTED)
    np.testing.assert_array_equal(second, EXPECTED)


def test_images_are_named_by_their_paths_or_numbers(path: Path) -> None:
    names = [name for name, _ in read([FILE, path.parent, PIXELS, np.stack([PIXELS] * 2)])]
    assert names == ["0", str(path), "2", "3[0]", "3[1]"]


def test_images_are_taken_one_by_one() -> None:
    taken = []

    def images() -> Iterator[np.ndarray]:
        for number in range(100):
            taken.append(number)
            yield PIXELS

    given = given_images(images())
    next(given)
    next(given)
    assert taken == [0, 1]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (None, "None: expected a path, bytes, an open file, a PIL image, an array or a tensor"),
        (5, "of type int: expected a path"),
        ({"a": PIXELS}, "of type dict"),
        (pd.DataFrame({"file": ["a.png"]}), "a table: give its column with the images."),
        (PIXELS.astype(float), r"an array of shape \(10, 12, 3\) of float64 with values from"),
        (torch.eye(4).to_sparse(), "of type Tensor, and NumPy cannot read it: give a NumPy array"),
        (io.StringIO("a"), 'a file that was opened as text: open it with the mode "rb".'),
    ],
)
def test_what_is_no_image_is_refused_alone_and_costs_its_row_among_others(
    image: object, message: str
) -> None:
    with pytest.raises(ParameterError, match=f"^`images` is {message}"):
        read(image)
    (_, first), (name, problem), (_, last) = read([PIXELS, image, PIXELS])
    assert isinstance(first, np.ndarray)
    assert isinstance(last, np.ndarray)
    assert name == "1"
    assert str(problem).startswith("element 1 of `images` is ")


def test_files_and_folders_that_are_not_there_cost_their_row(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    problems = [problem for _, problem in read(["no.png", tmp_path / "empty", "https://a/b.png"])]
    assert problems[0] == "there is no such file or folder"
    assert "no image in it" in problems[1]
    assert "a web address is not opened" in problems[2]
    with pytest.raises(InvalidDatasetError, match="no image in it"):
        read(tmp_path / "empty")


def test_a_folder_is_read_at_any_depth(tmp_path: Path) -> None:
    for name in ("a/b/1.png", "a/2.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(FILE)
    assert {name for name, _ in read(tmp_path)} == {
        f"{tmp_path}/a/b/1.png",
        f"{tmp_path}/a/2.png",
    }


def test_a_photograph_that_pillow_has_opened_is_read_as_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(encode(paint("red", 1, (200, 160)), "JPEG"))
    with Image.open(path) as opened:
        np.testing.assert_array_equal(pixels_of(opened)[0], pixels_of(path)[0])
        assert opened.size == (200, 160)
        changed = opened.copy()
    changed.paste((0, 0, 255), (0, 0, 200, 160))
    assert pixels_of(changed)[0][..., 2].min() == 255


def test_a_damaged_image_of_pillow_costs_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(FILE[:-40])
    with Image.open(tmp_path / "a.png") as opened:
        ((_, problem),) = read(opened)
    assert isinstance(problem, str)
