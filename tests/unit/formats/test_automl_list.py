"""AutoML's JSONL: rows, labels, image locations and invalid rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from train_pytorch_model.formats.automl_list import read_annotations
from train_pytorch_model.formats.listing import UNLABELLED
from train_pytorch_model.formats.present_files import PresentFiles
from train_pytorch_model.formats.reading import MalformedFileError

DATASTORE = "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/blob/paths"


def write(root: Path, *rows: dict[str, Any] | str, images: tuple[str, ...] = ()) -> Path:
    """Write a list of these rows beside these images; a string is written as it is."""
    for name in images:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (root / "train.jsonl").write_text("\n".join(lines))
    return root / "train.jsonl"


def refused(path: Path) -> str:
    with pytest.raises(MalformedFileError) as raised:
        read_annotations(path)
    return str(raised.value)


# ── Rows ─────────────────────────────────────────────────────────────────────────────────────────


def test_images_are_listed_by_category_and_name(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"image_url": "x/10.jpg", "label": "class10", "image_details": {"format": "jpg"}},
        {"image_url": "x/9.jpg", "label": "class2"},
        {"image_url": "./top.png", "label": "class10"},
        {"image_url": "x/1.jpg", "label": "class10"},
        images=("x/10.jpg", "x/9.jpg", "top.png", "x/1.jpg"),
    )
    listing = read_annotations(path)
    assert listing.categories == ("class2", "class10")
    assert list(listing.file_names) == ["x/9.jpg", "top.png", "x/1.jpg", "x/10.jpg"]
    assert listing.class_indices.tolist() == [0, 1, 1, 1]
    assert listing.columns == ("id", "category")
    assert listing.ignored == {}


def test_rows_without_a_label_are_images_without_a_category(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"image_url": "b.jpg"}, {"image_url": "a.jpg"}, images=("a.jpg", "b.jpg")
    )
    listing = read_annotations(path)
    assert (listing.categories, list(listing.file_names)) == ((), ["a.jpg", "b.jpg"])
    assert listing.class_indices.tolist() == [UNLABELLED, UNLABELLED]
    assert listing.columns == ("id",)


def test_integers_are_accepted_as_labels(tmp_path: Path) -> None:
    rows = [{"image_url": f"{label}.jpg", "label": label} for label in (10, 9)]
    assert read_annotations(write(tmp_path, *rows, images=("9.jpg", "10.jpg"))).categories == (
        "9",
        "10",
    )


def test_a_repeated_row_counts_once(tmp_path: Path) -> None:
    row = {"image_url": "a.jpg", "label": "a"}
    listing = read_annotations(write(tmp_path, row, row, row, images=("a.jpg",)))
    assert list(listing.file_names) == ["a.jpg"]
    assert listing.ignored == {"duplicate rows": 2}


@pytest.mark.parametrize(
    "url", ["x//a.jpg", "x/./a.jpg", "././x/a.jpg", f"{DATASTORE}/y//x//a.jpg"]
)
def test_spellings_of_a_path_are_the_same_image(tmp_path: Path, url: str) -> None:
    rows = ({"image_url": "x/a.jpg"}, {"image_url": url})
    listing = read_annotations(write(tmp_path, *rows, images=("x/a.jpg",)))
    assert list(listing.file_names) == ["x/a.jpg"]


def test_blank_lines_and_a_byte_order_mark_are_ignored(tmp_path: Path) -> None:
    lines = ('\ufeff{"image_url": "a.jpg"}', "", "  \r", '{"image_url": "b.jpg"}\r')
    path = write(tmp_path, *lines, images=("a.jpg", "b.jpg"))
    assert list(read_annotations(path).file_names) == ["a.jpg", "b.jpg"]


# ── Image locations ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "url",
    [
        "fridge/milk/1 ü.jpg",
        "./fridge/milk/1 ü.jpg",
        f"{DATASTORE}/fridge/milk/1 ü.jpg",
        f"{DATASTORE}/UI/2026-11-21/fridge/milk/1%20%C3%BC.jpg",
        "AmlDatastore://blob/fridge/milk/1 ü.jpg",
        "azureml://datastores/blob/paths/above/fridge/milk/1 ü.jpg",
        "azureml://x/y/fridge/milk/1 ü.jpg",
    ],
)
def test_an_image_is_found_below_the_directory_of_the_list(tmp_path: Path, url: str) -> None:
    listing = read_annotations(write(tmp_path, {"image_url": url}, images=("fridge/milk/1 ü.jpg",)))
    assert list(listing.file_names) == ["fridge/milk/1 ü.jpg"]


def test_absolute_paths_and_file_urls_inside_the_directory_are_accepted(tmp_path: Path) -> None:
    inside = (tmp_path / "a b.jpg").as_posix()
    address = (tmp_path / "c d.jpg").as_uri()
    unescaped = f"FILE://localhost{tmp_path.as_posix()}/e#f?.jpg"
    urls = (inside, address, unescaped)
    names = ("a b.jpg", "c d.jpg", "e#f?.jpg")
    path = write(tmp_path, *({"image_url": url} for url in urls), images=names)
    assert "%20" in address
    assert list(read_annotations(path).file_names) == list(names)


def test_the_longest_existing_suffix_of_a_url_is_used(tmp_path: Path) -> None:
    path = write(tmp_path, {"image_url": f"{DATASTORE}/x/a/1.jpg"}, images=("a/1.jpg", "1.jpg"))
    assert list(read_annotations(path).file_names) == ["a/1.jpg"]


def test_the_lookups_of_a_very_deep_url_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def problem_with(_: PresentFiles, name: str) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr(PresentFiles, "problem_with", problem_with)
    read_annotations(write(tmp_path, {"image_url": "azureml://x/y/" + "a/" * 100_000 + "1.jpg"}))
    assert asked[0].count("/") == 63


# ── Invalid rows ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"image_url": "../a.jpg"}, "image '../a.jpg' is outside the directory of the file."),
        ({"image_url": "/etc/passwd"}, "image '/etc/passwd' is outside the directory of the file."),
        (
            {"image_url": "file:///etc/passwd"},
            "image '/etc/passwd' is outside the directory of the file.",
        ),
        ({"image_url": "file://[a.jpg"}, "image '' is outside the directory of the file."),
        ({"image_url": "b.jpg"}, "image 'b.jpg' does not exist."),
        ({"image_url": "out.jpg"}, "image 'out.jpg' is a link that points outside the directory."),
        (
            {"image_url": "https://example.org/a.jpg"},
            "image 'https://example.org/a.jpg' is remote. Images are not fetched from the network:"
            " download"
            " them beside the file.",
        ),
        (
            {"image_url": f"{DATASTORE}/a/%2e%2e/%2e%2e/etc/passwd"},
            f"image '{DATASTORE}/a/%2e%2e/%2e%2e/etc/passwd' is not below the directory of the"
            " file.",
        ),
        ({"url": "a.jpg"}, 'no string under "image_url".'),
        ({"image_url": 7}, 'no string under "image_url".'),
        (
            {"image_url": "a.jpg", "label": [{"topX": 0.1}]},
            "its label is {'topX': 0.1}, and boxes and other objects are not supported. A category"
            " or a list of categories is expected.",
        ),
        ({"image_url": "a.jpg", "label": True}, "its label is True; a string is expected."),
        ({"image_url": "a.jpg", "label": 1.5}, "its label is 1.5; a string is expected."),
        ({"image_url": "a.jpg", "label": ""}, "its label has 0 bytes; 1 to 255 are expected."),
        (
            {"image_url": "a.jpg", "label": "ü" * 128},
            "its label has 256 bytes; 1 to 255 are expected.",
        ),
        ("{", "not a JSON object: Input data was truncated."),
        ("[1]", "not a JSON object: Expected `object`, got `array`."),
        ('{"image_url": "\\ud800"}', "not a JSON object: "),
    ],
)
def test_an_invalid_row_is_reported_with_its_line_and_reason(
    tmp_path: Path, row: dict[str, Any] | str, reason: str
) -> None:
    path = write(tmp_path, {"image_url": "a.jpg", "label": "x"}, row, images=("a.jpg",))
    (tmp_path / "out.jpg").symlink_to("/etc/passwd")
    assert refused(path).startswith(
        f"1 row of train.jsonl cannot be used:\n  train.jsonl:2: {reason}"
    )


def test_a_deeply_nested_row_is_invalid(tmp_path: Path) -> None:
    path = write(tmp_path, '{"image_url": "a.jpg", "x": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert refused(path).startswith(
        "1 row of train.jsonl cannot be used:\n  train.jsonl:1: not a JSON object"
    )


def test_conflicting_labels_of_one_image_are_refused(tmp_path: Path) -> None:
    rows = [{"image_url": "a.jpg", "label": label} for label in ("x", "y")]
    message = "train.jsonl:2: image 'a.jpg' has label 'x' in another row and 'y' here."
    assert message in refused(write(tmp_path, *rows, images=("a.jpg",)))


def test_images_without_a_label_are_left_out_if_others_have_one(tmp_path: Path) -> None:
    rows = [{"image_url": "a.jpg", "label": "x"}, {"image_url": "b.jpg"}]
    listing = read_annotations(write(tmp_path, *rows, images=("a.jpg", "b.jpg")))
    assert list(listing.file_names) == ["a.jpg"]
    assert listing.ignored == {"images without a category in their row ('b.jpg')": 1}
