"""Hostile archives: links, paths outside the archive, and decompression bombs."""

import io
import os
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.archives import COMPRESS, KINDS, contents, listed, pack, refused

from train_pytorch_model.datasets.conversion import open_source
from train_pytorch_model.errors import UnfinishedOutputError

# ── Links and special files ──────────────────────────────────────────────────────────────────────


def special_tar(path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, kind in (
            ("a/link.png", tarfile.SYMTYPE),
            ("a/hard.png", tarfile.LNKTYPE),
            ("a/fifo.png", tarfile.FIFOTYPE),
            ("a/device.png", tarfile.CHRTYPE),
            ("away", tarfile.SYMTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        sparse = tarfile.TarInfo("a/sparse.png")
        sparse.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1000000"}
        sparse.size = 1
        tar.addfile(sparse, io.BytesIO(b"x"))
        for name in ("a/real.png", "b/real.png"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"r"))
    return path


def special_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as zip_:
        for name, kind in (
            ("a/link.png", stat.S_IFLNK),
            ("a/hard.png", stat.S_IFLNK),
            ("a/fifo.png", stat.S_IFIFO),
            ("a/device.png", stat.S_IFCHR),
            ("a/sparse.png", stat.S_IFSOCK),
            ("away/", stat.S_IFLNK),
        ):
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | 0o777) << 16
            zip_.writestr(info, "/etc/passwd")
        zip_.writestr("a/real.png", b"r")
        zip_.writestr("b/real.png", b"r")
    return path


@pytest.mark.parametrize("make", [special_tar, special_zip])
def test_links_and_special_files_are_counted_and_not_read(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path / "archive")
    assert listed(path).ignored == {"links and special files": 6}
    assert contents(path) == {"a/real.png": b"r", "b/real.png": b"r"}


def test_a_link_does_not_replace_a_file_of_the_same_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "zip", "w") as zip_:
        zip_.writestr("a.png", b"real")
        link = zipfile.ZipInfo("./a.png")
        link.external_attr = stat.S_IFLNK << 16
        zip_.writestr(link, "/etc/passwd")
    with tarfile.open(tmp_path / "tar", "w") as tar:
        info = tarfile.TarInfo("./a.png")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
        info = tarfile.TarInfo("a.png")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"real"))
    assert contents(tmp_path / "zip") == contents(tmp_path / "tar") == {"a.png": b"real"}


# ── Paths outside the archive ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        *("../x.png", "a/../../x.png", "a/..", "/x.png", "//server/share/x.png", "/"),
        *(
            "..\\x.png",
            "a\\..\\..\\x.png",
            "C:\\x.png",
            "C:/x.png",
            "\\x.png",
            "\\\\server\\share\\x.png",
        ),
    ],
)
def test_a_member_outside_the_archive_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    path = pack(tmp_path / "archive", {"a/1.png": b"1", name: b"x"}, kind)
    assert refused(path).endswith("points outside the archive. Do not trust it.")


def test_a_link_whose_own_path_is_outside_the_archive_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "tar", "w") as tar:
        info = tarfile.TarInfo("../link")
        info.type, info.linkname = tarfile.SYMTYPE, "a"
        tar.addfile(info)
    assert (
        refused(tmp_path / "tar")
        == "its member '../link' points outside the archive. Do not trust it."
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["C:x.png", "a..b.png", "...png"])
def test_unusual_but_safe_names_are_accepted(tmp_path: Path, kind: str, name: str) -> None:
    assert (
        len(
            listed(pack(tmp_path / "archive", {f"a/{name}": b"1", "b/1.png": b""}, kind)).file_names
        )
        >= 1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_of_more_than_255_bytes_is_refused(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {"a/" + "図" * 84 + ".png": b""}, kind)
    assert refused(path) == f"its member {'a/' + '図' * 38!r}… has a name of more than 255 bytes."


@pytest.mark.parametrize("kind", KINDS)
def test_duplicate_file_names_are_refused(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {"a/1.png": b"1", "a/./1.png": b"2", "b/1.png": b""}, kind)
    assert refused(path) == "it holds 'a/1.png' twice."


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["_meta.yaml", "images.lst", "_schema.json"])
def test_an_archive_of_an_image_directory_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    path = pack(tmp_path / "archive", {f"x/{name}": b"", "x/image/0_0.png": b""}, kind)
    assert (
        refused(path)
        == "it already contains an ImageDirectory. Unpack it; no conversion is needed."
    )


# ── Decompression bombs ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_more_members_than_allowed_are_refused(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {f"a/{index}": b"" for index in range(5)}, kind)
    assert len(listed(path, MAX_MEMBERS=5).file_names) == 0
    assert refused(path, MAX_MEMBERS=4) == "it has more than 4 members."


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_larger_than_allowed_is_refused(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {"a.png": b"x" * 1001, "b.txt": b"x" * 2000}, kind)
    assert listed(path, MAX_MEMBER_BYTES=1001).ignored == {"files of another kind (.txt)": 1}
    assert (
        refused(path, MAX_MEMBER_BYTES=1000) == "'a.png' has 1,001 bytes; at most 1,000 are read."
    )


@pytest.mark.parametrize("kind", KINDS)
def test_more_bytes_in_total_than_allowed_are_refused(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {f"{index}.png": b"x" * 1000 for index in range(40)}, kind)
    assert len(listed(path, MAX_TOTAL_BYTES=200_000).file_names) == 40
    assert refused(path, MAX_TOTAL_BYTES=35_000) == "it unpacks to more than 35,000 bytes."


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tar"])
def test_a_compression_ratio_above_the_limit_is_refused(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {"black.png": bytes(1 << 20)}, kind)
    assert len(listed(path).file_names) == 1  # below the size at which the ratio is checked
    message = (
        f"it unpacks to more than 200 times its {path.stat().st_size:,} bytes. No archive of"
        f" images does."
    )
    assert refused(path, RATIO_FROM_BYTES=1 << 19) == message


def test_zip_members_that_share_their_bytes_are_counted_separately(tmp_path: Path) -> None:
    path = pack(
        tmp_path / "archive", {f"{index:02}.png": os.urandom(10_000) for index in range(30)}
    )
    data = bytearray(path.read_bytes())
    index = data.index(b"PK\1\2")
    entry = 46 + len("00.png")
    for number in range(30):  # all entries point to the first member
        data[index + number * entry + 42 : index + number * entry + 46] = bytes(4)
    small = bytes(data[: data.index(b"PK\3\4", 4)]) + bytes(data[index:])
    moved = len(small) - len(data)
    end = small.index(b"PK\5\6")
    offset = int.from_bytes(small[end + 16 : end + 20], "little") + moved
    path.write_bytes(small[: end + 16] + offset.to_bytes(4, "little") + small[end + 20 :])
    assert refused(path, MAX_RATIO=20, RATIO_FROM_BYTES=100).startswith(
        "it unpacks to more than 20 times its "
    )


def test_the_index_of_a_zip_is_bounded(tmp_path: Path) -> None:
    path = pack(tmp_path / "archive", {f"{index}.png": b"" for index in range(2000)})
    assert len(listed(path).file_names) == 2000
    assert refused(path, MAX_INDEX_BYTES=100_000) == "its index has more than 100,000 bytes."


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_unsupported_zip_compression_is_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w", method) as zip_:
        zip_.writestr("a.png", bytes(1000))
    message = (
        f"'a.png' is compressed by method {method}; only stored and deflated members are supported."
        " Unpack it first."
    )
    assert refused(tmp_path / "archive") == message


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_a_tar_header_is_bounded(tmp_path: Path, kind: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("a.png")
        tar.addfile(info)
        info = tarfile.TarInfo("b.png")
        info.pax_headers = {"comment": "x" * (1 << 18)}
        tar.addfile(info)
    (tmp_path / "archive").write_bytes(COMPRESS[kind](buffer.getvalue()))
    assert refused(tmp_path / "archive") == "a header has more than 262,144 bytes."


def test_global_tar_headers_are_not_kept(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "archive", "w", pax_headers={"comment": "x" * 1000}) as tar:
        tar.addfile(tarfile.TarInfo("a.png"))
    assert list(listed(tmp_path / "archive").file_names) == ["a.png"]


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "archive", {"a.png": b"1"})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert refused(path) == "'a.png' is encrypted. Unpack it with its password first."


@pytest.mark.parametrize("kind", KINDS)
def test_folders_are_bounded_as_members_are(tmp_path: Path, kind: str) -> None:
    path = pack(
        tmp_path / "archive", {"/".join("abcdefghijklmnop") + "/1.png": b"1", "2.png": b"2"}, kind
    )
    assert listed(path, MAX_MEMBERS=17).categories == ("a",)
    assert refused(path, MAX_MEMBERS=16) == "it has more than 16 members."
    path = pack(tmp_path / "archive", {"a/" * 17 + "1.png": b"1"}, kind)
    assert refused(path) == f"its member {'a/' * 17 + '1.png'!r}… is in more than 16 folders."


@pytest.mark.skipif(sys.platform != "linux", reason="the longest path has another length")
def test_folders_with_the_longest_path_that_can_be_made_are_no_bug(tmp_path: Path) -> None:
    room = 4092 - len(str(tmp_path / ".unpacked-12345678/content"))
    folders = [*["d" * 255] * (room // 256), "d" * (room % 256 - 1)]
    path = pack(tmp_path / "a.zip", {"/".join(folders) + "/": b""})
    with (
        pytest.raises(UnfinishedOutputError, match=r"^--output .*File name too long"),
        open_source(path, tmp_path / "out"),
    ):
        pytest.fail("the block ran")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_no_folder(tmp_path: Path, kind: str) -> None:
    path = pack(tmp_path / "archive", {"a": b"1", "a/1.png": b"1"}, kind)
    assert refused(path) == "it holds 'a' twice."
