"""Archives: which images are unpacked and listed, and how damaged ones are refused."""

import bz2
import gzip
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.archives import KINDS, Members, contents, listed, pack, refused, unpack_archive

from train_pytorch_model.datasets.conversion import list_unpacked
from train_pytorch_model.formats.archive import extract
from train_pytorch_model.formats.listing import UNLABELLED

TAR = tarfile.TarInfo("a.png").tobuf() + bytes(2 * tarfile.BLOCKSIZE)

# ── Listing and reading ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_listed_like_those_of_plain_folders(tmp_path: Path, kind: str) -> None:
    members: Members = {
        "class10/b.jpg": b"10b",
        "class2/img10.PNG": b"2-10",
        "class2/": None,
        "class2/img9.png": b"2-9",
        "größe/図.webp": b"g",
        "leer/": None,
        "beside.png": b"",
        "class2/deep/x.png": b"",
        "class2/deep/y.png": b"",
        "class2/notes.txt": b"",
        "class2/.hidden.png": b"",
        "__MACOSX/class2/._img9.png": b"",
    }
    listing = listed(pack(tmp_path / "archive", members, kind))
    assert listing.categories == ("class2", "class10", "größe")
    assert list(listing.file_names) == [
        "class2/deep/x.png",
        "class2/deep/y.png",
        "class2/img9.png",
        "class2/img10.PNG",
        "class10/b.jpg",
        "größe/図.webp",
    ]
    assert listing.class_indices.tolist() == [0, 0, 0, 0, 1, 2]
    assert listing.columns == ("id", "category")
    assert listing.ignored == {
        "hidden entries": 2,
        "files of another kind (.txt)": 1,
        "images beside the category folders": 1,
    }
    assert contents(tmp_path / "archive") == {
        "class2/img9.png": b"2-9",
        "class2/img10.PNG": b"2-10",
        "class2/deep/x.png": b"",
        "class2/deep/y.png": b"",
        "class10/b.jpg": b"10b",
        "größe/図.webp": b"g",
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("names", "around", "taken"),
    [
        (["data/all/a/1.png", "data/all/b/1.png"], "data/all/", ["a/1.png", "b/1.png"]),
        (["data/a1/1.png", "data/a2/1.png"], "data/", ["a1/1.png", "a2/1.png"]),
        (["./a/1.png", "./b/1.png"], "", ["a/1.png", "b/1.png"]),
        (["photos/1.png", "photos/2.png"], "photos/", ["1.png", "2.png"]),
        (["1.png"], "", ["1.png"]),
    ],
)
def test_outer_folders_around_everything_are_skipped(
    tmp_path: Path, kind: str, names: list[str], around: str, taken: list[str]
) -> None:
    path = pack(tmp_path / "archive", {name: name.encode() for name in names}, kind)
    (tmp_path / "root").mkdir()
    unpacked = extract(path, tmp_path / "root")
    listing = list_unpacked(unpacked).listing
    assert unpacked.folder == tmp_path / "root" / around
    assert list(listing.file_names) == taken
    assert sorted(contents(path).values()) == sorted(name.encode() for name in names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", [{}, {"only/": None}, {"./": None}])
def test_an_archive_may_be_empty(tmp_path: Path, kind: str, members: Members) -> None:
    assert len(listed(pack(tmp_path / "archive", members, kind)).file_names) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_other_files_may_lie_beside_the_outer_folder(tmp_path: Path, kind: str) -> None:
    members: Members = {"README.txt": b"about", "pets/cat/1.png": b"1", "pets/dog/2.png": b"2"}
    assert listed(pack(tmp_path / "archive", members, kind)).categories == ("cat", "dog")


@pytest.mark.parametrize("kind", KINDS)
def test_loose_images_have_no_category(tmp_path: Path, kind: str) -> None:
    listing = listed(pack(tmp_path / "archive", {"b.png": b"", "a.png": b""}, kind))
    assert list(listing.file_names) == ["a.png", "b.png"]
    assert listing.categories == ()
    assert listing.class_indices.tolist() == [UNLABELLED, UNLABELLED]
    assert listing.columns == ("id",)


def test_a_gzip_of_several_members_is_read_to_the_end(tmp_path: Path) -> None:
    whole = pack(tmp_path / "tar", {"a/1.png": b"x" * 3000, "b/2.png": b"y"}, "tar").read_bytes()
    (tmp_path / "parts").write_bytes(gzip.compress(whole[:1500]) + gzip.compress(whole[1500:]))
    assert contents(tmp_path / "parts") == {"a/1.png": b"x" * 3000, "b/2.png": b"y"}


def test_zip_names_from_macos_and_windows_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w") as zip_:
        zip_.writestr("caf\N{LATIN SMALL LETTER E WITH ACUTE}/1.png", b"1")
        zip_.writestr("dos\\2.png", b"2")
    data = path.read_bytes()
    utf8 = "caf\N{LATIN SMALL LETTER E WITH ACUTE}".encode()
    flags = [i for i in range(len(data)) if data[i : i + 4] in (b"PK\3\4", b"PK\1\2")]
    unmarked = bytearray(data)
    for start in flags:
        place = start + (6 if data[start + 2] == 3 else 8)
        unmarked[place + 1] &= ~0x08  # clears the UTF-8 flag, as on macOS
    assert data.count(utf8) == 2
    path.write_bytes(unmarked)
    assert listed(path).categories == ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "dos")
    assert contents(path) == {
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}/1.png": b"1",
        "dos/2.png": b"2",
    }


def test_a_name_that_is_not_utf8_is_read_as_code_page_437(tmp_path: Path) -> None:
    path = pack(tmp_path / "archive", {"a/x.png": b"1", "b/y.png": b"2"})
    path.write_bytes(path.read_bytes().replace(b"a/x.png", b"a/\x81.png"))
    assert list(listed(path).file_names) == ["a/ü.png", "b/y.png"]  # 0x81 in code page 437


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_may_have_255_bytes(tmp_path: Path, kind: str) -> None:
    name = "図" * 83 + "xx.png"
    assert len(name.encode()) == 255
    assert (
        contents(pack(tmp_path / "archive", {f"a/{name}": b"1", "b/1.png": b""}, kind))[f"a/{name}"]
        == b"1"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_images_are_unpacked(tmp_path: Path, kind: str) -> None:
    members = {"a/1.png": b"image", "a/1.txt": b"text", ".cache": b"x", "a/b/2.png": b"nested"}
    (tmp_path / "root").mkdir()
    extract(pack(tmp_path / "archive", members, kind), tmp_path / "root")
    found = {
        path.relative_to(tmp_path / "root").as_posix(): path
        for path in (tmp_path / "root").rglob("*")
    }
    assert {name: path.read_bytes() for name, path in found.items() if path.is_file()} == {
        "a/1.png": b"image",
        "a/1.txt": b"",  # only counted
        "a/b/2.png": b"nested",
    }


# ── Damage ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "it is not an archive of a supported format.", id="nothing"),
        pytest.param(b"some text", "it is not an archive of a supported format.", id="text"),
        pytest.param(
            lzma.compress(TAR), "it is not an archive of a supported format.", id="a tar in xz"
        ),
        pytest.param(b"PK and no zip", "it is damaged or cut short: ", id="PK"),
        pytest.param(
            gzip.compress(b"some text", mtime=0), "there is no tar in it.", id="text in gzip"
        ),
        pytest.param(bz2.compress(b"x" * 600), "there is no tar in it.", id="text in bzip2"),
        pytest.param(b"\x1f\x8b and no gzip", "it is damaged or cut short: ", id="no gzip"),
        pytest.param(b"BZh and no bzip2", "it is damaged or cut short: ", id="no bzip2"),
    ],
)
def test_files_that_are_not_archives_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "archive").write_bytes(data)
    assert refused(tmp_path / "archive").startswith(message)


def test_self_extracting_zips_and_pre_posix_tars_are_archives(tmp_path: Path) -> None:
    whole = pack(tmp_path / "zip", {"a.png": b"1"}).read_bytes()
    (tmp_path / "program").write_bytes(b"#!/bin/sh\n" + whole)
    assert contents(tmp_path / "program") == {"a.png": b"1"}

    old = bytearray(pack(tmp_path / "tar", {"a.png": b"1"}, "tar").read_bytes())
    old[257:265] = bytes(8)
    old[148:156] = b" " * 8
    old[148:156] = f"{sum(old[:512]):06o}\0 ".encode()
    (tmp_path / "old").write_bytes(old)
    assert contents(tmp_path / "old") == {"a.png": b"1"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_archive_is_refused(tmp_path: Path, kind: str) -> None:
    path = pack(
        tmp_path / "archive", {f"{index}.png": os.urandom(4000) for index in range(20)}, kind
    )
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert refused(path).startswith("it is damaged or cut short: ")


def test_a_tar_without_a_header_or_end_marker_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "archive", {"a.png": b"x" * 512, "b.png": b"y" * 512}, "tar")
    message = "it is damaged or cut short: neither a header nor the end was found."
    data = path.read_bytes()
    path.write_bytes(data[:2048])  # between the second file and the end
    assert refused(path) == message
    path.write_bytes(data[:1024] + b"?" * 512 + data[1536:])  # the second header
    assert refused(path) == message


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2"])
def test_a_wrong_checksum_is_found_before_anything_is_read(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {"a.png": os.urandom(4000)}, kind)
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF
    path.write_bytes(data)
    assert refused(path).startswith("it is damaged or cut short: ")


def test_a_damaged_member_of_a_zip_is_one_unreadable_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w") as zip_:
        zip_.writestr("a.png", b"first")
        zip_.writestr("b.png", b"second")
    (tmp_path / "archive").write_bytes(
        (tmp_path / "archive").read_bytes().replace(b"first", b"burst")
    )
    unpacked, _ = unpack_archive(tmp_path / "archive")
    assert unpacked.unreadable == {
        unpacked.folder / "a.png": "damaged in the archive: Bad CRC-32 for file 'a.png'"
    }
    assert [(unpacked.folder / name).read_bytes() for name in ("a.png", "b.png")] == [
        b"",
        b"second",
    ]


@pytest.mark.parametrize("size", [-1, -512, -5000])
def test_a_negative_size_is_refused(tmp_path: Path, size: int) -> None:
    info = tarfile.TarInfo("b.png")
    info.size = size
    header = info.tobuf(tarfile.GNU_FORMAT)
    start = pack(tmp_path / "archive", {"a.png": b"x" * 100}, "tar").read_bytes()[:1024]
    (tmp_path / "archive").write_bytes(start + header + bytes(1024))
    # Python releases since 2025 do not accept it as a header.
    expected = (f"'b.png' has {size:,} bytes", "it is damaged or cut short: ")
    assert refused(tmp_path / "archive").startswith(expected)
