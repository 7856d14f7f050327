"""YAML, JSON and the files of a directory: read within bounds, written in one form."""

import os
from pathlib import Path

import pytest

from train_pytorch_model.formats.archive import extract
from train_pytorch_model.formats.reading import (
    MAX_YAML_BYTES,
    META,
    MalformedFileError,
    file_inside,
    is_inner_path,
    read_bounded,
    read_json,
    read_meta,
    read_yaml,
)
from train_pytorch_model.formats.writing import write_json, write_yaml


def written(tmp_path: Path, text: str | bytes, name: str = "file.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ── YAML ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "a: [1", "file.yaml is not valid YAML: while parsing a flow sequence", id="cut off"
        ),
        pytest.param(
            "a: &x [1]\nb: *x", "is not valid YAML: aliases are not supported", id="an alias"
        ),
        pytest.param(
            "a: &x [*x]", "is not valid YAML: aliases are not supported", id="an alias of itself"
        ),
        pytest.param("- " * 20_000, "is not valid YAML: maximum recursion depth", id="deep lists"),
        pytest.param("a: 2026-99-99", "is not valid YAML: month must be in", id="an invalid date"),
        pytest.param(
            "a: " + "9" * 5000, "is not valid YAML: Exceeds the limit", id="an overlong number"
        ),
        pytest.param(
            "a: !!timestamp x", "is not valid YAML: 'NoneType' object has", id="a tag that fails"
        ),
        pytest.param(
            "a: !!int ''", "is not valid YAML: string index out of range", id="an empty number"
        ),
        pytest.param("a: !!bool x", "is not valid YAML: 'x'", id="neither true nor false"),
        pytest.param("? [a]\n: b", "is not valid YAML: .*unhashable key", id="a list as a key"),
        pytest.param("a: \0", "is not valid YAML: unacceptable character", id="a NUL"),
        pytest.param(b"a: \xff", "is not valid YAML: .*invalid start byte", id="not UTF-8"),
        pytest.param(
            "a: !!python/object/apply:os.system [true]",
            "is not valid YAML: could not determine a constructor for the tag",
            id="a Python object",
        ),
        pytest.param(
            "", "file.yaml should hold a mapping of keys to values but holds nothing", id="empty"
        ),
        pytest.param(
            "- a", "should hold a mapping of keys to values but holds a list", id="a list"
        ),
        pytest.param(
            "a", "should hold a mapping of keys to values but holds a string", id="a text"
        ),
        pytest.param(
            "3", "should hold a mapping of keys to values but holds a single value", id="a number"
        ),
    ],
)
def test_yaml_that_is_not_a_mapping_of_plain_values_is_refused(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(MalformedFileError, match=message):
        read_yaml(written(tmp_path, text))


def test_an_alias_bomb_is_refused_before_it_expands(tmp_path: Path) -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    bomb = "a0: &a0 [lol]\n" + "\n".join(levels)
    with pytest.raises(
        MalformedFileError, match=r"file.yaml is not valid YAML: aliases are not supported"
    ):
        read_yaml(written(tmp_path, bomb))


def test_the_reason_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError) as raised:
        read_yaml(written(tmp_path, "a: !!" + "x" * 5000))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("brackets", ["[", "{", "[{", "['}', ", "# ]]]]\n ["])
def test_deeply_nested_brackets_are_refused(tmp_path: Path, brackets: str) -> None:
    with pytest.raises(MalformedFileError, match=r"not valid YAML: more than 50 nested brackets"):
        read_yaml(written(tmp_path, "a: " + brackets * 100_000))
    assert read_yaml(written(tmp_path, "a: " + "[" * 20 + "]" * 20)).keys() == {"a"}
    assert len(read_yaml(written(tmp_path, "a: [" + "[1], " * 1000 + "]"))["a"]) == 1000


def test_overlong_yaml_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "#" * (MAX_YAML_BYTES + 1))
    with pytest.raises(MalformedFileError, match=r"file.yaml is larger than 1,048,576 bytes."):
        read_yaml(path)


def test_yaml_is_written_in_ascii_block_style_in_the_order_given(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    value = {
        "type": "X",
        "extension": {},
        "name": "Grün",
        "flag": False,
        "mean": [0.5, 1.0],
        "at": "1:2",
    }
    write_yaml(path, value)
    assert path.read_bytes() == (
        b"type: X\nextension: {}\nname: \"Gr\\xFCn\"\nflag: false\nmean:\n- 0.5\n- 1.0\nat: '1:2'\n"
    )
    assert read_yaml(path) == value


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def test_json_is_written_in_ascii_indented_by_two(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"name": "Grün 🙂", "values": [1]})
    assert path.read_bytes() == (
        b'{\n  "name": "Gr\\u00fcn \\ud83d\\ude42",\n  "values": [\n    1\n  ]\n}'
    )
    assert read_json(path, dict) == {"name": "Grün 🙂", "values": [1]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "file.json is not as expected: Input data was truncated."),
        (b"[1]", "file.json is not as expected: Expected `object`, got `array`."),
        (b'{"a": "\xff"}', "file.json is not as expected: "),
        (b"[" * 100_000, "file.json is not as expected: "),
    ],
)
def test_invalid_json_and_other_types_are_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    with pytest.raises(MalformedFileError, match=message):
        read_json(written(tmp_path, data, "file.json"), dict)


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


def test_a_byte_order_mark_before_json_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8-sig")
    assert read_json(tmp_path / "list.json", list[int]) == [1]


def test_a_file_of_exactly_the_size_limit_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(MalformedFileError, match=r"file.yaml is larger than 4 bytes."):
        read_bounded(path, 4)


def test_anything_but_a_regular_file_is_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("nothing", "fifo", "."):
        with pytest.raises(MalformedFileError, match=r"is missing."):
            read_bounded(tmp_path / name, 5)


def test_a_file_that_the_system_refuses_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"cannot be read: File name too long."):
        read_bounded(tmp_path / ("a" * 5000), 5)


@pytest.mark.parametrize("name", ["a", "a/b.jpg", "./a", "a//b", "..a/b..", "c:\\a", "\udcff"])
def test_paths_that_stay_inside_are_accepted(name: str) -> None:
    assert is_inner_path(name)


@pytest.mark.parametrize(
    "name", ["", ".", "/a", "//a", "..", "../a", "a/../b", "a/..", "a\0b", "\ud800"]
)
def test_paths_that_lead_outside_are_rejected(name: str) -> None:
    assert not is_inner_path(name)


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "inner/../../other", ""])
def test_a_path_that_leads_outside_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").touch()
    with pytest.raises(MalformedFileError, match=f"'{name}' is not a path inside the directory."):
        file_inside(tmp_path / "root", name)


def test_a_link_is_followed_only_inside_the_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "file").touch()
    (tmp_path / "secret").touch()
    (root / "inside").symlink_to("file")
    (root / "outside").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    (root / "circle").symlink_to("circle")

    assert file_inside(root, "inside") == root / "inside"
    for name in ("outside", "folder/secret"):
        with pytest.raises(
            MalformedFileError, match=f"'{name}' is a link that points outside the directory."
        ):
            file_inside(root, name)
    for name in ("circle", "inner", "nothing"):
        with pytest.raises(MalformedFileError, match=f"{name} is missing."):
            file_inside(root, name)


def test_a_name_too_long_for_the_system_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"aaa is missing."):
        file_inside(tmp_path, "a" * 5000)


def test_a_file_of_others_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, b"")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.R_OK)  # root may read all files
    with pytest.raises(
        MalformedFileError, match=rf"^{path.name} cannot be read: Permission denied\.$"
    ):
        file_inside(tmp_path, path.name)
    with pytest.raises(MalformedFileError, match=r"^it cannot be read: Permission denied\.$"):
        extract(path, tmp_path)


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").touch()
    (tmp_path / "link").symlink_to("real")
    assert file_inside(tmp_path / "link", "file").is_file()


def test_meta_that_is_a_link_out_of_the_directory_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("type: a secret text\n")
    root = tmp_path / "directory"
    root.mkdir()
    (root / META).symlink_to(tmp_path / "secret")
    with pytest.raises(
        MalformedFileError, match=r"_meta.yaml is a link that points outside the directory"
    ):
        read_meta(root, "ModelDirectory")
