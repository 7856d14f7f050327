"""Conversion: folders, archives and lists give the same directory; hostile archives are refused."""

import bz2
import csv
import gzip
import io
import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.archives import pack
from tests.disks import files_in, files_of_at_most
from tests.logs import warnings_in
from tests.painting import encode, paint, paint_folders

from train_pytorch_model.datasets import conversion
from train_pytorch_model.datasets.conversion import Labels, convert, open_source
from train_pytorch_model.errors import InvalidDatasetError, UnfinishedOutputError
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.writing import AHEAD, in_order
from train_pytorch_model.machine.console import Bar

HINT = (
    "Convert takes one folder per category, an archive of them"
    " (.zip, .tar, .tar.gz, .tgz, .tar.bz2, .gz, .bz2), a CSV table of file names and categories,"
    " or AutoML's"
    " .jsonl."
)


def run(path: Path, output: Path) -> int:
    with open_source(path, output) as source:
        return convert(source, output)


def refused(path: Path, output: Path) -> str:
    with pytest.raises(InvalidDatasetError) as raised:
        run(path, output)
    assert not output.exists()
    return str(raised.value)


def archive_of(path: Path, root: Path) -> Path:
    """An archive of a whole directory, inside a folder `data`, in arbitrary order."""
    names = sorted(
        (name for name in root.rglob("*") if name.is_file()), key=lambda name: name.read_bytes()
    )
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as zip_:
            for name in names:
                zip_.write(name, f"data/{name.relative_to(root)}")
        return path
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in names:
            tar.add(name, f"data/{name.relative_to(root)}")
    data = buffer.getvalue()
    if path.suffix in (".gz", ".tgz"):
        data = gzip.compress(data)
    path.write_bytes(bz2.compress(data) if path.suffix == ".bz2" else data)
    return path


# ── The same directory from every source ─────────────────────────────────────────────────────────


def test_folders_are_converted_to_the_classic_form(tmp_path: Path) -> None:
    root = paint_folders(tmp_path / "in", 2, ("blue", "red"))
    (root / "red/0.png").rename(root / "red/0.JPG")
    (root / "empty").mkdir()
    assert run(root, tmp_path / "out") == 4
    found = files_in(tmp_path / "out")
    assert set(found) == {
        *("_meta.yaml", "_samples.json", "_schema.json", "images.lst"),
        *("image/0_0.png", "image/0_1.png", "image/1_2.JPG", "image/1_3.png"),
    }
    names = {
        "0_0.png": "blue/0.png",
        "0_1.png": "blue/1.png",
        "1_2.JPG": "red/0.JPG",
        "1_3.png": "red/1.png",
    }
    assert found["images.lst"].decode().splitlines() == [
        f'{{"image_info": {{"file_name": "image/{name}", "original": "{original}"}},'
        f' "category": "{original.partition("/")[0]}", "id": {row}}}'
        for row, (name, original) in enumerate(names.items())
    ]
    assert found["image/1_2.JPG"] == (root / "red/0.JPG").read_bytes()
    assert open_image_directory(tmp_path / "out", "Dataset").categories == ("blue", "red")


@pytest.mark.parametrize(
    "kind", ["a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2", "a.gz", "a.bz2"]
)
def test_an_archive_gives_the_same_directory_as_its_folders(tmp_path: Path, kind: str) -> None:
    root = paint_folders(tmp_path / "in", 5)
    (root / "red/2.png").write_bytes(b"no image")
    path = archive_of(tmp_path / kind, root)
    assert run(root, tmp_path / "folders") == run(path, tmp_path / "archive") == 14
    expected, found = files_in(tmp_path / "folders"), files_in(tmp_path / "archive")
    assert expected == found
    assert "image/2_12.png" not in found
    assert b'"id": 12' not in found["images.lst"]
    assert b'"id": 13' in found["images.lst"]


@pytest.mark.parametrize("through", ["train.jsonl", "MLTable", "."])
def test_a_list_gives_the_same_directory_as_the_folders(tmp_path: Path, through: str) -> None:
    root = paint_folders(tmp_path / "in", 2)
    lines = [
        json.dumps(
            {"image_url": f"azureml://x/y/{path.relative_to(tmp_path)}", "label": path.parent.name}
        )
        for path in sorted(root.rglob("*.png"), reverse=True)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    (tmp_path / "MLTable").write_text("paths:\n  - file: ./train.jsonl\n")
    run(root, tmp_path / "folders")
    run(tmp_path / through, tmp_path / "list")
    of_folders, of_list = files_in(tmp_path / "folders"), files_in(tmp_path / "list")
    # The original names in a list are relative to its own directory.
    of_list["images.lst"] = of_list["images.lst"].replace(b'"original": "in/', b'"original": "')
    assert of_folders == of_list


@pytest.mark.parametrize("kind", [".zip", ".tgz"])
@pytest.mark.parametrize("where", ["in the archive", "given"])
def test_a_table_gives_the_categories_of_images_in_an_archive(
    tmp_path: Path, kind: str, where: str
) -> None:
    (photographs := tmp_path / "in/all/photographs").mkdir(parents=True)
    data = {label: encode(paint(label, 0), "PNG") for label in ("blue", "red")}
    for number, label in enumerate(("red", "blue", "red")):
        (photographs / f"{number}.png").write_bytes(data[label])
    table = (photographs.parent if where == "in the archive" else tmp_path) / "labels.csv"
    table.write_text("image,label\n0,red\n1,blue\n2,red\n")
    archive = archive_of(tmp_path / f"in{kind}", tmp_path / "in")
    labels = Labels() if where == "in the archive" else Labels(labels=table)
    with open_source(archive, tmp_path / "out", labels) as source:
        assert convert(source, tmp_path / "out") == 3
    images = open_image_directory(tmp_path / "out", "images")
    found = sorted(
        (images.categories[category], images.path(index).read_bytes())
        for index, category in enumerate(images.class_indices.tolist())
    )
    assert found == [("blue", data["blue"]), ("red", data["red"]), ("red", data["red"])]


def test_loose_images_keep_their_names(tmp_path: Path) -> None:
    long = "図" * 83 + "xx.png"
    (tmp_path / "in").mkdir()
    for name in (long, "b 2.PNG", "b 10.png"):
        (tmp_path / "in" / name).write_bytes(encode(paint("red", 1)))
    assert run(tmp_path / "in", tmp_path / "out") == 3
    rows = list(open_image_directory(tmp_path / "out", "Dataset").read_listed_rows())
    assert rows == [
        {"image_info": {"file_name": f"image/{name}"}, "id": index}
        for index, name in enumerate(("b 2.PNG", "b 10.png", long))
    ]


def test_a_category_name_may_have_255_bytes(tmp_path: Path) -> None:
    name = "図" * 85
    (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "in" / name / "1.png").write_bytes(encode(paint("red", 1)))
    run(archive_of(tmp_path / "a.zip", tmp_path / "in"), tmp_path / "loose")
    run(tmp_path / "in", tmp_path / "out")
    assert open_image_directory(tmp_path / "out", "Dataset").categories == (name,)
    assert open_image_directory(tmp_path / "loose", "Dataset").categories == ()


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems accept valid text only")
def test_a_name_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "in") + b"/caf\xe9.png")).write_bytes(
        encode(paint("red", 1))
    )
    run(tmp_path / "in", tmp_path / "out")
    assert list(open_image_directory(tmp_path / "out", "Dataset").file_names) == [
        "image/unnamed_0.png"
    ]


# ── Unreadable images ────────────────────────────────────────────────────────────────────────────


def test_unreadable_images_are_left_out_and_listed_however_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = paint_folders(tmp_path / "in", 11)
    for index in range(11):
        (root / f"blue/{index}.png").write_bytes(b"no image")
    (root / "green/3.png").write_bytes(b"")
    (root / "notes.txt").touch()
    assert run(root, tmp_path / "out") == 21
    out = open_image_directory(tmp_path / "out", "Dataset")
    assert out.categories == ("green", "red")
    assert out.class_counts().tolist() == [10, 11]
    assert len(list((tmp_path / "out/image").iterdir())) == 21
    with (tmp_path / "out/bad_images.csv").open() as file:
        unreadable = list(csv.DictReader(file))
    assert [row["file_name"] for row in unreadable] == [
        *(f"blue/{index}.png" for index in range(11)),
        "green/3.png",
    ]
    assert {row["port"] for row in unreadable} == {"Input dataset"}
    assert [row["category"] for row in unreadable] == ["blue"] * 11 + ["green"]
    assert unreadable[0]["reason"].startswith("not an image of a known format")
    left_out, empty, ignored = warnings_in(caplog)
    assert left_out.startswith(
        "12 unreadable images are left out:\n  Input dataset: 'blue/0.png': not an image"
    )
    assert empty.endswith("categories without an image that can be read are left out:\n  'blue'")
    assert ignored == f'Input dataset "{root}": skipped: files of another kind (.txt): 1.'


def test_a_file_that_cannot_be_read_or_unpacked_is_an_unreadable_image(tmp_path: Path) -> None:
    root = paint_folders(tmp_path / "in", 2, ("red",))
    with open_source(root, tmp_path / "out") as source:
        (root / "red/0.png").unlink()
        convert(source, tmp_path / "out")
    reasons = (tmp_path / "out/bad_images.csv").read_text()
    assert (
        "Input dataset,red/0.png,red,the file cannot be read: No such file or directory,\n"
        in reasons
    )

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zip_:
        zip_.writestr("a.png", encode(paint("red", 1)))
        zip_.writestr("b.png", encode(paint("blue", 1)))
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[200] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(data)
    assert run(tmp_path / "a.zip", tmp_path / "zipped") == 1
    reasons = (tmp_path / "zipped/bad_images.csv").read_text()
    assert "Input dataset,a.png,,damaged in the archive: Bad CRC-32 for file 'a.png',\n" in reasons


def test_without_a_readable_image_there_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/1.png").write_bytes(b"no image")
    assert refused(tmp_path / "in", tmp_path / "out").startswith(
        f'Input dataset "{tmp_path}/in" is not valid, reason: none of its images can be read.'
        " Unreadable images:\n  'a/1.png': not an image of a known format"
    )


def test_the_log_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(conversion, "IMAGES_PER_LINE", 4)
    root = paint_folders(tmp_path / "in", 3)
    (root / "green/2.png").write_bytes(b"")
    run(root, tmp_path / "out")
    lines = [line for line in caplog.messages if line.startswith("Converting ")]
    assert [line.partition("  ")[2] for line in lines] == ["left out: 0", "left out: 1"]


# ── Refused inputs ───────────────────────────────────────────────────────────────────────────────


def test_an_archive_of_several_data_sets_is_refused_by_name(tmp_path: Path) -> None:
    members = {
        f"pets/{part}/{pet}/1.png": b"" for part in ("train", "val") for pet in ("cat", "dog")
    }
    message = refused(pack(tmp_path / "pets.zip", members), tmp_path / "out")
    assert (
        "its folder 'train' is a data set of its own, not a category. Unpack it and name one"
        in message
    )


def test_inputs_that_cannot_be_converted_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    title = f'Input dataset "{tmp_path}/in" is not valid, reason: '
    assert refused(tmp_path / "in", out) == (f"{title}there is no such file or directory. {HINT}")
    assert "there is no such file or directory." in refused(tmp_path / ("x" * 300), out)
    (tmp_path / "in").write_text("text")
    assert refused(tmp_path / "in", out).startswith(
        f"{title}it is not an archive of a supported format. {HINT}"
    )
    (tmp_path / "in").unlink()
    (tmp_path / "in").mkdir()
    assert refused(tmp_path / "in", out).startswith(f"{title}it is empty. An image directory holds")
    (tmp_path / "in/MLTable").write_text("{}")
    assert refused(tmp_path / "in", out).startswith(f"{title}MLTable should name one .jsonl file")
    (tmp_path / "a.jsonl").write_text("")
    assert 'a.jsonl" is not valid, reason: no image in it' in refused(tmp_path / "a.jsonl", out)


def test_an_image_directory_needs_no_conversion(tmp_path: Path) -> None:
    run(paint_folders(tmp_path / "in", 2), tmp_path / "once")
    message = "it is already an ImageDirectory; no conversion is needed."
    assert f'"{tmp_path}/once" is not valid, reason: {message}' in refused(
        tmp_path / "once", tmp_path / "out"
    )
    packed = archive_of(tmp_path / "a.zip", tmp_path / "once")
    assert "it already contains an ImageDirectory. Unpack it" in refused(packed, tmp_path / "out")


def test_nothing_from_a_hostile_archive_is_written(tmp_path: Path) -> None:
    image = encode(paint("red", 1))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zip_:
        for name in ("a/1.png", "b/1.png", "../../outside.png"):
            zip_.writestr(name, image)
    (tmp_path / "deep").mkdir()
    before = set(tmp_path.parent.rglob("*"))
    assert "points outside the archive. Do not trust it." in refused(
        tmp_path / "a.zip", tmp_path / "deep/out"
    )
    assert set(tmp_path.parent.rglob("*")) == before


@pytest.mark.parametrize("kind", ["folders", "a.zip", "a.tar.gz"])
def test_a_full_disk_is_neither_damage_nor_an_unreadable_image(tmp_path: Path, kind: str) -> None:
    folders = paint_folders(tmp_path / "in", 2)
    path = folders if kind == "folders" else archive_of(tmp_path / kind, folders)
    with (
        files_of_at_most(50),
        pytest.raises(
            UnfinishedOutputError, match=r"^--output .*nothing is left of it: .*File too large"
        ),
    ):
        run(path, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"in", path.name}


def test_an_interruption_leaves_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Bar] = []

    def interrupt(bar: Bar) -> None:
        written.append(bar)
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Bar, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(archive_of(tmp_path / "a.zip", paint_folders(tmp_path / "in", 40)), tmp_path / "out")
    assert len(written) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"in", "a.zip"}


# ── Threads ──────────────────────────────────────────────────────────────────────────────────────


def test_results_are_in_order_and_a_bounded_number_is_prefetched() -> None:
    started: list[int] = []

    def items() -> Iterable[int]:
        for item in range(500):
            started.append(item)
            yield item

    with in_order(lambda item: item * item, items()) as results:
        for index in range(500):
            assert next(results) == index**2
            assert len(started) <= index + AHEAD + 1
        assert next(results, None) is None


def test_after_an_error_no_more_work_is_started() -> None:
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        if item == 3:
            raise ValueError("three")
        return item

    with pytest.raises(ValueError, match="three"), in_order(work, range(10_000)) as results:
        list(results)
    assert len(started) <= 4 + AHEAD + 1
