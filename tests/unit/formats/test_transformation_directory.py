"""Transformation directories: the classic form, refusals and their messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from train_pytorch_model.errors import InvalidTransformationDirectoryError
from train_pytorch_model.formats.transformation_directory import (
    OPERATIONS,
    CenterCrop,
    ColorJitter,
    Grayscale,
    Operation,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    open_transformation,
    write_transformation,
)

PORT = "Input image transformation"
META = "type: TransformationDirectory\nextension: {}\ntransform_type: Image\n"
HINT = (
    " The operations are Resize, CenterCrop, Pad, ColorJitter, Grayscale, RandomResizedCrop,"
    " RandomCrop,"
    " RandomHorizontalFlip, RandomVerticalFlip, RandomRotation, RandomAffine, RandomGrayscale,"
    " RandomPerspective. init-transformation writes such a directory."
)


def write(root: Path, text: str, meta: str = META) -> Path:
    root.mkdir()
    (root / "_meta.yaml").write_text(meta)
    (root / "_transforms.json").write_text(text)
    return root


def parse(tmp_path: Path, *entries: Any) -> tuple[Operation, ...]:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(entries))
    return open_transformation(path, PORT).operations


def refusal(path: Path) -> str:
    """The reason for refusing it, without the fixed start and end of the message."""
    with pytest.raises(InvalidTransformationDirectoryError) as raised:
        open_transformation(path, PORT)
    text = str(raised.value)
    start = f'TransformationDirectory "{PORT} {path}" is invalid. Reason: '
    assert text.startswith(start)
    assert text.endswith(HINT)
    return text[len(start) : -len(HINT)]


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────


def test_a_classic_directory_is_read(tmp_path: Path) -> None:
    text = '[["Resize", 48], ["CenterCrop", 40], ["ColorJitter", {}], ["RandomRotation", 10]]'
    transformation = open_transformation(write(tmp_path / "classic", text), PORT)
    assert transformation.operations == (
        Resize(48),
        CenterCrop(40),
        ColorJitter(),
        RandomRotation(10),
    )
    assert transformation.title == f"{PORT} {tmp_path}/classic"
    assert str(transformation) == "Resize, CenterCrop, ColorJitter, RandomRotation"


def test_the_bare_json_file_is_read_too(tmp_path: Path) -> None:
    directory = write(tmp_path / "classic", '[["Grayscale", {}]]')
    assert open_transformation(directory / "_transforms.json", PORT).operations == (Grayscale(),)


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [
        (8, RandomCrop(8)),
        ([8], RandomCrop(8)),
        ([[8, 6], 2, True], RandomCrop([8, 6], padding=2, pad_if_needed=True)),
        ({"size": 8, "padding": [1, 2, 3, 4]}, RandomCrop(8, padding=[1, 2, 3, 4])),
        ([8, None, False, [1, 2, 3], "edge"], RandomCrop(8, fill=[1, 2, 3], padding_mode="edge")),
    ],
)
def test_arguments_may_be_a_number_a_list_or_a_mapping(
    tmp_path: Path, arguments: Any, operation: Operation
) -> None:
    assert parse(tmp_path, ["RandomCrop", arguments]) == (operation,)


def test_an_empty_list_has_no_operations(tmp_path: Path) -> None:
    assert parse(tmp_path) == ()
    assert str(open_transformation(tmp_path / "list.json", PORT)) == "no operation"


def test_inference_omits_random_operations(tmp_path: Path) -> None:
    needed = (
        "Resize",
        "CenterCrop",
        "Pad",
        "RandomResizedCrop",
        "RandomCrop",
        "RandomRotation",
        "RandomAffine",
    )
    entries: list[Any] = [[name, 9 if name in needed else {}] for name in OPERATIONS]
    parse(tmp_path, *entries)
    transformation = open_transformation(tmp_path / "list.json", PORT)
    assert [operation.name for operation in transformation.operations] == list(OPERATIONS)
    # The classic ColorJitter has no strengths and changes nothing.
    assert str(transformation.for_inference()) == "Resize, CenterCrop, Pad, ColorJitter, Grayscale"


# ── Writing ──────────────────────────────────────────────────────────────────────────────────────


def test_the_classic_form_is_written(tmp_path: Path) -> None:
    operations = [
        Resize(48),
        CenterCrop([40, 30]),
        Pad(2, fill=255),
        RandomHorizontalFlip(),
        RandomRotation(10.0),
        RandomAffine(7.5),
        RandomResizedCrop(8, scale=[0.5, 1]),
        RandomResizedCrop(8),
    ]
    write_transformation(tmp_path / "new", operations, "output")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "_meta.yaml",
        "_transforms.json",
    ]
    assert (tmp_path / "new/_meta.yaml").read_text() == META
    text = (tmp_path / "new/_transforms.json").read_text()
    assert json.loads(text) == [
        ["Resize", 48],
        ["CenterCrop", {"size": [40, 30]}],
        ["Pad", {"padding": 2, "fill": 255}],
        ["RandomHorizontalFlip", {}],
        ["RandomRotation", 10],
        ["RandomAffine", 7.5],
        ["RandomResizedCrop", {"size": 8, "scale": [0.5, 1]}],
        ["RandomResizedCrop", 8],
    ]
    assert text.startswith('[\n  [\n    "Resize",\n    48\n  ],\n  [\n    "CenterCrop",\n    {\n')
    assert open_transformation(tmp_path / "new", PORT).operations == tuple(operations)


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == "there is no such directory or file."


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (
            META.replace("Image", "Pickle"),
            "_meta.yaml says transform_type 'Pickle', expected 'Image'."
            " A pickle can run code, and is never loaded.",
        ),
        (META.replace("Image", "Text"), "_meta.yaml says transform_type 'Text', expected 'Image'."),
        (
            "type: TransformationDirectory\n",
            "_meta.yaml says transform_type None, expected 'Image'.",
        ),
        (
            "type: ImageDirectory\n",
            "_meta.yaml says type 'ImageDirectory', expected 'TransformationDirectory'.",
        ),
        ("- 1\n", "_meta.yaml should hold a mapping of keys to values but holds a list."),
    ],
)
def test_a_directory_of_another_type_is_refused(tmp_path: Path, meta: str, reason: str) -> None:
    assert refusal(write(tmp_path / "other", "[]", meta)) == reason


def test_an_incomplete_directory_is_refused(tmp_path: Path) -> None:
    directory = write(tmp_path / "half", "[]")
    (directory / "_transforms.json").unlink()
    assert refusal(directory) == "_transforms.json is missing."
    (directory / "_meta.yaml").unlink()
    assert refusal(directory) == "_meta.yaml is missing."
    (directory / "_incomplete").touch()
    assert refusal(directory) == "it is incomplete: _incomplete is present."


@pytest.mark.parametrize("text", ["", "{}", "[", '"Resize"', "[" * 100_000, "\xff"])
def test_a_file_that_is_not_a_json_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.json").write_text(text, encoding="latin-1")
    assert refusal(tmp_path / "list.json").startswith("list.json is not as expected: ")


def test_too_many_operations_are_refused(tmp_path: Path) -> None:
    assert len(parse(tmp_path, *[["Grayscale", {}]] * 64)) == 64
    (tmp_path / "list.json").write_text(json.dumps([["Grayscale", {}]] * 65))
    assert refusal(tmp_path / "list.json") == "list.json has 65 operations, expected at most 64."


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("Resize", "expected [operation, arguments], found 'Resize'"),
        (["Resize"], "expected [operation, arguments], found ['Resize']"),
        (["Resize", 1, 2], "expected [operation, arguments], found ['Resize', 1, 2]"),
        ([1, 2], "expected [operation, arguments], found [1, 2]"),
        (["x" * 99], f"expected [operation, arguments], found ['{'x' * 58} …"),
        (["Lambda", "print"], "unknown operation 'Lambda'"),
        (["os.system", "true"], "unknown operation 'os.system'"),
        (["__class__", {}], "unknown operation '__class__'"),
        (["Operation", {}], "unknown operation 'Operation'"),
        (["resize", 8], "unknown operation 'resize'"),
        (["Resize", "8"], "Resize takes a number, a list or a mapping, found '8'"),
        (["Resize", True], "Resize takes a number, a list or a mapping, found True"),
        (["Resize", None], "Resize takes a number, a list or a mapping, found None"),
        (["Resize", {}], "Resize: Object missing required field `size`"),
        (["Resize", 0], "Resize: Expected `int` >= 1 - at `$.size`"),
        (["Resize", 4097], "Resize: Expected `int` <= 4096 - at `$.size`"),
        (["Resize", 8.5], "Resize: Expected `int | array`, got `float` - at `$.size`"),
        (["Resize", [[8, 8, 8]]], "Resize: Expected `array` of length <= 2 - at `$.size`"),
        (["Resize", [[]]], "Resize: Expected `array` of length >= 1 - at `$.size`"),
        (["Resize", [256, 224]], "Resize: Expected `str`, got `int` - at `$.interpolation`"),
        (["Resize", [8, "cubic"]], "Resize: Invalid enum value 'cubic' - at `$.interpolation`"),
        (["Resize", [8, "nearest", 8]], "Resize: max_size should be greater than size but is 8"),
        (["Resize", [[8, 8], "nearest", 9]], "Resize: max_size requires a size of a single side"),
        (["Resize", {"sise": 8}], "Resize: Object contains unknown field `sise`"),
        (
            ["Grayscale", [1, 2]],
            "Grayscale takes at most 1 arguments (num_output_channels), found 2",
        ),
        (["Grayscale", 2], "Grayscale: Invalid enum value 2 - at `$.num_output_channels`"),
        (["Pad", -1], "Pad: Expected `int` >= 0 - at `$.padding`"),
        (["Pad", [[1, 2, 3]]], "Pad: padding should be 1, 2 or 4 numbers but is 3"),
        (
            ["RandomCrop", [8, [1, 2, 3]]],
            "RandomCrop: padding should be 1, 2 or 4 numbers but is 3",
        ),
        (["Pad", {"padding": 1, "fill": 256}], "Pad: Expected `int` <= 255 - at `$.fill`"),
        (
            ["ColorJitter", [[1, 0.5]]],
            "ColorJitter: brightness should be [lowest, highest] but is [1.0, 0.5]",
        ),
        (["ColorJitter", {"hue": 0.6}], "ColorJitter: Expected `float` <= 0.5 - at `$.hue`"),
        (["RandomRotation", -5], "RandomRotation: Expected `float` >= 0.0 - at `$.degrees`"),
        (
            ["RandomRotation", [[9, 5]]],
            "RandomRotation: degrees should be [lowest, highest] but is [9.0, 5.0]",
        ),
        (
            ["RandomAffine", [5, [0, 2]]],
            "RandomAffine: Expected `float` <= 1.0 - at `$.translate[1]`",
        ),
        (
            ["RandomAffine", {"degrees": 5, "shear": [1, 2, 3]}],
            "RandomAffine: shear should be 1, 2 or 4 numbers but is 3",
        ),
        (
            ["RandomAffine", {"degrees": 5, "shear": [1, 2, 4, 3]}],
            "RandomAffine: shear should be [lowest, highest] but is [1.0, 2.0, 4.0, 3.0]",
        ),
        (["RandomHorizontalFlip", 1.5], "RandomHorizontalFlip: Expected `float` <= 1.0 - at `$.p`"),
    ],
)
def test_an_invalid_entry_is_named_with_the_reason(tmp_path: Path, entry: Any, reason: str) -> None:
    directory = write(tmp_path / "wrong", json.dumps([["Resize", 8], entry]))
    assert refusal(directory) == f"_transforms.json cannot be used:\n  entry 2: {reason}.\n"


def test_up_to_ten_invalid_entries_are_listed(tmp_path: Path) -> None:
    directory = write(tmp_path / "wrong", json.dumps([["A", 1]] * 12))
    reason = refusal(directory)
    assert reason.count("unknown operation") == 10
    assert reason.endswith("\n  and 2 more\n")
