"""Byte-identical files are found, whatever their size; others of the same size are not taken for
them.
"""

from pathlib import Path

import pytest

from train_pytorch_model.quality import identical_files
from train_pytorch_model.quality.identical_files import HEAD_BYTES, identical_pairs

LARGE = bytes(range(256)) * (2 * HEAD_BYTES // 256)


def write(root: Path, *contents: bytes) -> list[Path]:
    files = [root / str(index) for index in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    return files


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_files_of_the_same_content_are_identical(tmp_path: Path, content: bytes) -> None:
    other_end, other_beginning = content[:-1] + b"!", b"!" + content[1:]
    files = write(
        tmp_path, content, other_end, content, other_beginning, content + b"0", content, other_end
    )
    assert sorted(identical_pairs(files).tolist()) == [[0, 2], [0, 5], [1, 6]]


def test_a_file_that_is_gone_is_left_to_training(tmp_path: Path) -> None:
    files = write(tmp_path, b"one", b"one", b"one")
    files[1].unlink()
    assert identical_pairs(files).tolist() == [[0, 2]]


def test_hashing_is_bounded_and_begins_with_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identical_files, "MAX_HASHED_BYTES", 2 * len(LARGE))
    files = write(tmp_path, LARGE + b"1", LARGE + b"1", b"small", b"small", LARGE, LARGE)
    assert sorted(identical_pairs(files).tolist()) == [[2, 3], [4, 5]]
