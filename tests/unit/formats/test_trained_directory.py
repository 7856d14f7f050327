"""The manifest of a trained directory: its files and its fingerprint."""

import json
from pathlib import Path

import pytest

from train_pytorch_model.formats.trained_directory import (
    differences,
    published_fingerprint,
    write_manifest,
)

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_sizes_and_digests_of_all_files_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "model").write_bytes(b"abc")
    (tmp_path / "inner/empty").touch()
    (tmp_path / "_incomplete").touch()
    write_manifest(tmp_path, {"parameters": "--epochs 1"})
    assert json.loads((tmp_path / "manifest.json").read_bytes()) == {
        "files": {
            "inner/empty": {"size": 0, "sha256": NOTHING},
            "model": {"size": 3, "sha256": ABC},
        },
        "fingerprint": {"parameters": "--epochs 1"},
    }


def test_only_a_complete_directory_has_a_published_fingerprint(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"parameters": "--epochs 1"})
    assert published_fingerprint(tmp_path) is None
    (tmp_path / "_meta.yaml").touch()
    assert published_fingerprint(tmp_path) == {"parameters": "--epochs 1"}


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{}", '{"fingerprint": "x"}', '{"fingerprint": null}']
)
def test_a_directory_without_a_valid_manifest_has_no_fingerprint(
    tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "_meta.yaml").touch()
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    assert published_fingerprint(tmp_path) is None


def test_changed_and_missing_files_are_found(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"abc")
    write_manifest(tmp_path, {})
    assert differences(tmp_path) == []
    (tmp_path / "a").write_bytes(b"abd")
    (tmp_path / "b").unlink()
    assert differences(tmp_path) == ["a has changed since it was written", "b is missing."]


def test_a_missing_manifest_or_a_path_outside_is_a_difference(tmp_path: Path) -> None:
    assert differences(tmp_path) == ["manifest.json is missing."]
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"../a": {"sha256": ABC}}}))
    assert differences(tmp_path) == ["'../a' is not a path inside the directory."]
