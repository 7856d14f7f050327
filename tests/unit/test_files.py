"""Reading within bounds, and directories that are whole or empty."""

import errno
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats.files import (
    INCOMPLETE,
    MAX_YAML_BYTES,
    META,
    READ_BACK_AFTER_S,
    READ_BYTES,
    MalformedFileError,
    check_output,
    copy_tree,
    file_inside,
    is_inner_path,
    read_bounded,
    read_json,
    read_yaml,
    write_durably,
    write_json,
    write_yaml,
    writing_directory,
)


def written(tmp_path: Path, text: str | bytes, name: str = "file.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ── YAML ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [1", "file.yaml is not valid YAML: while parsing a flow sequence", id="cut off"),
        pytest.param("a: &x [1]\nb: *x", "is not valid YAML: aliases are not read", id="an alias"),
        pytest.param("a: &x [*x]", "is not valid YAML: aliases are not read", id="an alias of itself"),
        pytest.param("- " * 20_000, "is not valid YAML: maximum recursion depth", id="deep lists"),
        pytest.param("a: 2026-99-99", "is not valid YAML: month must be in", id="a date that is none"),
        pytest.param("a: " + "9" * 5000, "is not valid YAML: Exceeds the limit", id="a number without end"),
        pytest.param("a: !!timestamp x", "is not valid YAML: 'NoneType' object has", id="a tag that fails"),
        pytest.param("a: !!int ''", "is not valid YAML: string index out of range", id="an empty number"),
        pytest.param("a: !!bool x", "is not valid YAML: 'x'", id="neither true nor false"),
        pytest.param("? [a]\n: b", "is not valid YAML: .*unhashable key", id="a list as a key"),
        pytest.param("a: \0", "is not valid YAML: unacceptable character", id="a NUL"),
        pytest.param(b"a: \xff", "is not valid YAML: .*invalid start byte", id="not UTF-8"),
        pytest.param(
            "a: !!python/object/apply:os.system [true]",
            "is not valid YAML: could not determine a constructor for the tag",
            id="a Python object",
        ),
        pytest.param("", "file.yaml should hold a mapping of keys to values and holds nothing", id="empty"),
        pytest.param("- a", "should hold a mapping of keys to values and holds a list", id="a list"),
        pytest.param("a", "should hold a mapping of keys to values and holds a text", id="a text"),
        pytest.param("3", "should hold a mapping of keys to values and holds a single value", id="a number"),
    ],
)
def test_yaml_that_is_no_mapping_of_plain_values_is_refused(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(MalformedFileError, match=message):
        read_yaml(written(tmp_path, text))


def test_an_alias_bomb_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    bomb = "a0: &a0 [lol]\n" + "\n".join(levels)
    with pytest.raises(MalformedFileError, match=r"file.yaml is not valid YAML: aliases are not read"):
        read_yaml(written(tmp_path, bomb))


def test_the_reason_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError) as raised:
        read_yaml(written(tmp_path, "a: !!" + "x" * 5000))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("brackets", ["[", "{", "[{"])
def test_brackets_in_each_other_are_refused_before_they_are_parsed(tmp_path: Path, brackets: str) -> None:
    """A parser would take days for them."""
    with pytest.raises(MalformedFileError, match=r"file.yaml has more than 50 brackets in each other."):
        read_yaml(written(tmp_path, "a: " + brackets * 500_000))
    assert read_yaml(written(tmp_path, "a: " + "[" * 20 + "]" * 20)).keys() == {"a"}
    assert len(read_yaml(written(tmp_path, "a: [" + "[1], " * 1000 + "]"))["a"]) == 1000


def test_more_yaml_than_any_directory_has_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "#" * (MAX_YAML_BYTES + 1))
    with pytest.raises(MalformedFileError, match=r"file.yaml is larger than 1,048,576 bytes."):
        read_yaml(path)


def test_yaml_is_written_in_ascii_block_style_in_the_order_given(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    value = {"type": "X", "extension": {}, "name": "Grün", "flag": False, "mean": [0.5, 1.0], "at": "1:2"}
    write_yaml(path, value)
    assert path.read_bytes() == (
        b"type: X\nextension: {}\nname: \"Gr\\xFCn\"\nflag: false\nmean:\n- 0.5\n- 1.0\nat: '1:2'\n"
    )
    assert read_yaml(path) == value


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def test_json_is_written_in_ascii_indented_by_two(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"name": "Grün 🙂", "values": [1]})
    assert path.read_bytes() == (b'{\n  "name": "Gr\\u00fcn \\ud83d\\ude42",\n  "values": [\n    1\n  ]\n}')
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
def test_json_of_another_kind_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(MalformedFileError, match=message):
        read_json(written(tmp_path, data, "file.json"), dict)


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_may_have_exactly_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path, b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(MalformedFileError, match=r"file.yaml is larger than 4 bytes."):
        read_bounded(path, 4)


def test_what_is_no_regular_file_is_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("nothing", "fifo", "."):
        with pytest.raises(MalformedFileError, match=r"is missing."):
            read_bounded(tmp_path / name, 5)


def test_a_file_that_the_system_refuses_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"cannot be read: File name too long."):
        read_bounded(tmp_path / ("a" * 5000), 5)


@pytest.mark.parametrize("name", ["a", "a/b.jpg", "./a", "a//b", "..a/b..", "c:\\a", "\udcff"])
def test_paths_that_stay_inside(name: str) -> None:
    assert is_inner_path(name)


@pytest.mark.parametrize("name", ["", ".", "/a", "//a", "..", "../a", "a/../b", "a/..", "a\0b", "\ud800"])
def test_paths_that_lead_out(name: str) -> None:
    assert not is_inner_path(name)


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "inner/../../other", ""])
def test_a_path_that_leads_out_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").touch()
    with pytest.raises(MalformedFileError, match=f"'{name}' leads out of the directory."):
        file_inside(tmp_path / "root", name)


def test_a_link_is_followed_inside_only(tmp_path: Path) -> None:
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
        with pytest.raises(MalformedFileError, match=f"'{name}' is a link that leads out of the directory."):
            file_inside(root, name)
    for name in ("circle", "inner", "nothing"):
        with pytest.raises(MalformedFileError, match=f"{name} is missing."):
            file_inside(root, name)


def test_a_name_too_long_for_the_system_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"aaa is missing."):
        file_inside(tmp_path, "a" * 5000)


def test_a_link_to_the_directory_itself_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").touch()
    (tmp_path / "link").symlink_to("real")
    assert file_inside(tmp_path / "link", "file").is_file()


# ── Output directories ───────────────────────────────────────────────────────────────────────────


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_output(tmp_path / "a/b/c", "--output")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").mkdir()
    check_output(tmp_path / "empty", "--output")
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


def test_an_output_that_is_not_free_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    for name in "dbca":
        (tmp_path / "full" / name).touch()
    (tmp_path / "few").mkdir()
    (tmp_path / "few/a").touch()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / INCOMPLETE).touch()
    (tmp_path / "unfinished" / "half").touch()
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    for name, message in {
        "file": "is a file. Name a directory that is new or empty.",
        "full": "is not empty: it holds a, b, c …. Nothing is ever overwritten; name a directory that is"
        " new or empty.",
        "few": "is not empty: it holds a. Nothing is ever overwritten;",
        "unfinished": "holds an unfinished result (_incomplete is there) of a program that was ended."
        " Delete the directory, or name another.",
        "dangling": "cannot be written: File exists. Name a directory that is new or empty.",
        "file/inside": "cannot be written: Not a directory. Name a directory that is new or empty.",
        "a" * 300: "cannot be written: File name too long.",
    }.items():
        with pytest.raises(OutputDirectoryError) as raised:
            check_output(tmp_path / name, "--output")
        assert str(raised.value).startswith(f"--output {tmp_path / name} {message}")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "dangling",
        "few",
        "file",
        "full",
        "unfinished",
    ]


@pytest.mark.parametrize("by_writing", [True, False])
def test_the_trial_of_another_process_is_no_result(tmp_path: Path, by_writing: bool) -> None:
    (tmp_path / INCOMPLETE).touch()
    check_output(tmp_path, "--output", by_writing)
    for name in (INCOMPLETE, "data"):
        (tmp_path / name).touch()
    with pytest.raises(OutputDirectoryError, match=r"holds an unfinished result"):
        check_output(tmp_path, "--output", by_writing)


def test_a_process_that_only_looks_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "touch", lambda *_: pytest.fail("it has written"))
    monkeypatch.setattr(Path, "mkdir", lambda *_: pytest.fail("it has written"))
    check_output(tmp_path / "new", "--output", by_writing=False)
    check_output(tmp_path, "--output", by_writing=False)


def test_a_full_disk_leaves_an_empty_directory_and_says_so(tmp_path: Path) -> None:
    output = tmp_path / "output"

    def write() -> None:
        with writing_directory(output, {}, "--output") as root:
            (root / "half").touch()
            raise OSError(errno.ENOSPC, "No space left on device", "half")

    with pytest.raises(OutputDirectoryError) as raised:
        write()
    assert str(raised.value) == (
        f"--output {output} cannot be finished, and is empty again: [Errno 28] No space left on device:"
        " 'half'."
    )
    assert list(output.iterdir()) == []


def test_a_directory_is_marked_until_its_meta_closes_it(tmp_path: Path) -> None:
    output = tmp_path / "deep/output"
    meta: dict[str, object] = {}
    with writing_directory(output, meta, "--output") as root:
        assert [entry.name for entry in root.iterdir()] == [INCOMPLETE]
        (root / "data").write_text("x")
        meta["type"] = "X"
    assert sorted(entry.name for entry in output.iterdir()) == [META, "data"]
    assert (output / META).read_text() == "type: X\n"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_nothing_of_the_result_is_left(tmp_path: Path, error: type[BaseException]) -> None:
    output = tmp_path / "output"
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/data").touch()

    def write() -> None:
        with writing_directory(output, {}, "--output") as root:
            (root / "folder/inner").mkdir(parents=True)
            (root / "folder/inner/data").touch()
            (root / "link").symlink_to(tmp_path / "precious")
            raise error

    with pytest.raises(error):
        write()
    assert list(output.iterdir()) == []
    assert (tmp_path / "precious/data").exists()


def test_a_directory_that_is_not_free_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with (
        pytest.raises(OutputDirectoryError, match=r"is not empty: it holds data"),
        writing_directory(tmp_path, {}, "--output"),
    ):
        pytest.fail("the block ran")
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


# ── Copies ───────────────────────────────────────────────────────────────────────────────────────


def test_a_tree_is_copied_file_by_file_without_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "code").mkdir(parents=True)
    for name in ("z", "manifest.json", "code/a"):
        (source / name).write_text(name)
    target.mkdir()
    opened: list[str] = []
    real_open = Path.open

    def watched_open(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if "w" in mode:
            opened.append(path.relative_to(target).as_posix())
        return real_open(path, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", watched_open)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("a mount may not know this"))
    copy_tree(source, target, last="manifest.json")
    assert opened == ["code/a", "z", "manifest.json"]
    assert {path.name: path.read_text() for path in target.rglob("*") if path.is_file()} == {
        "a": "code/a",
        "z": "z",
        "manifest.json": "manifest.json",
    }


@pytest.mark.parametrize("landed", [b"", b"wr", b"written and more", b"Written"])
def test_what_a_mount_has_not_kept_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bytes
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for directory in (source, target):
        directory.mkdir()
    (source / "model").write_bytes(b"written")
    # The bytes come later than the close, and others than were written.
    monkeypatch.setattr(os, "fsync", lambda _: (target / "model").write_bytes(landed))
    pauses = Pauses(monkeypatch)
    with pytest.raises(OSError, match=r"what was written reads back otherwise"):
        copy_tree(source, target, last="manifest.json")
    assert pauses.taken == list(READ_BACK_AFTER_S)


def test_what_a_mount_shows_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for directory in (source, target):
        directory.mkdir()
    (source / "model").write_bytes(b"written")
    monkeypatch.setattr(os, "fsync", lambda _: (target / "model").unlink())  # it has no name yet
    copy = target / "model"
    pauses = Pauses(monkeypatch, {2: copy.touch, 3: lambda: copy.write_bytes(b"written")})
    copy_tree(source, target, last="manifest.json")
    assert (target / "model").read_bytes() == b"written"
    assert pauses.taken == list(READ_BACK_AFTER_S[:4])


class Pauses:
    """Nobody waits; what a mount does meanwhile, by the number of the pause."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, meanwhile: Mapping[int, Callable[[], object]] | None = None
    ) -> None:
        self.taken: list[float] = []
        self._meanwhile = meanwhile or {}
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self._meanwhile.get(len(self.taken), lambda: None)()
        self.taken.append(seconds)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.pwrite(file, b"x", 1),
        lambda file: os.pwrite(file, b"x", READ_BYTES + 3),
        lambda file: os.pwrite(file, b"x", READ_BYTES + 9),
        lambda file: os.ftruncate(file, READ_BYTES + 8),
        lambda file: os.ftruncate(file, READ_BYTES + 12),
    ],
    ids=["first part", "second part", "second piece", "too short", "too long"],
)
def test_what_reads_back_otherwise_is_not_written(
    damage: Callable[[int], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = b"a" * (READ_BYTES + 7), memoryview(b"bcd")
    write_durably(tmp_path / "good", *pieces)
    assert (tmp_path / "good").read_bytes() == b"".join(pieces)
    monkeypatch.setattr(os, "fsync", damage)
    with pytest.raises(OSError, match=r"what was written reads back otherwise"):
        write_durably(tmp_path / "bad", *pieces)
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
