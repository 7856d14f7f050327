"""Names in zips of Windows: right for the encodings of most, and never several images under one
name.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.archives import listed, refused
from tests.logs import warnings_in


def zip_of(path: Path, names: Sequence[str], encoding: str, extra: bool = False) -> Path:
    """A zip of PNG files whose names are in that encoding, without the flag of UTF-8."""
    replaced, buffer = {}, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number, name in enumerate(names):
            raw = name.encode(encoding)
            placeholder = f"{number:04}".ljust(len(raw), "Z")[: len(raw)]
            replaced[placeholder.encode()] = raw
            info = zipfile.ZipInfo(placeholder)
            if extra:
                content = b"\1" + struct.pack("<I", zlib.crc32(raw)) + name.encode()
                info.extra = struct.pack("<HH", 0x7075, len(content)) + content
            archive.writestr(info, b"")
    data = buffer.getvalue()
    for before, after in replaced.items():
        data = data.replace(before, after)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("encoding", "categories"),
    [
        ("cp932", ("ソファ", "机", "椅子")),  # the second byte of ソ is a backslash
        ("gbk", ("沙发", "椅子")),
        ("gbk", ("狗", "猫")),
        ("cp949", ("강아지", "고양이", "토끼")),
        ("big5", ("貓", "鳥類", "犬隻")),
        ("cp866", ("кошка", "собака")),
        ("cp850", ("Äpfel", "Müller", "São Paulo")),
    ],
)
def test_names_of_windows_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, encoding: str, categories: tuple[str, ...]
) -> None:
    names = [f"{category}/photo{number}.png" for category in categories for number in range(3)]
    listing = listed(zip_of(tmp_path / "a.zip", names, encoding))
    assert sorted(listing.file_names) == sorted(names)
    (warning,) = warnings_in(caplog)
    assert "its names are not in UTF-8, and are read as " in warning


@pytest.mark.parametrize(
    ("encoding", "extra"), [("utf-8", False), ("cp866", True), ("cp949", True)]
)
def test_names_that_are_known_are_taken_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, encoding: str, extra: bool
) -> None:
    category = "кот" if encoding != "cp949" else "개"
    assert listed(
        zip_of(tmp_path / "a.zip", [f"{category}/1.png", "b/1.png"], encoding, extra)
    ).categories == (
        "b",
        category,
    )
    assert warnings_in(caplog) == []


def test_names_that_fit_no_encoding_are_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", ["каТ╗/1.png", "b/1.png"], "cp866")
    assert "its names are in an unknown encoding" in refused(path)
