"""Fuzzing of the readers of datasets: they give a value or a documented error, and nothing else."""

import io
import os
import shutil
import tarfile
import tempfile
import zipfile
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzzing import IMAGE_META, LIST, SCHEMA, fuzzed, mutations_of, nothing_happens_outside
from tests.painting import encode, paint

from train_pytorch_model.datasets.conversion import convert, open_source
from train_pytorch_model.errors import (
    InvalidDatasetError,
    InvalidTransformationDirectoryError,
    NotLabeledDatasetError,
    UserError,
)
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.transformation_directory import OPERATIONS, open_transformation
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, read_size


@fuzzed
@given(
    meta=mutations_of(IMAGE_META),
    rows=mutations_of(LIST),
    schema=mutations_of(SCHEMA),
    which=st.integers(0, 2),
)
def test_an_image_directory(
    tmp_path: Path, meta: bytes, rows: bytes, schema: bytes, which: int
) -> None:
    """One of its files is fuzzed. Links are resolved before files are checked to be inside."""
    (tmp_path / "a.png").write_bytes(b"")
    files = {
        "_meta.yaml": IMAGE_META,
        "images.lst": LIST,
        "_schema.json": SCHEMA,
        "_samples.json": b"[]",
    }
    name = ("_meta.yaml", "images.lst", "_schema.json")[which]
    for other, content in (files | {name: (meta, rows, schema)[which]}).items():
        (tmp_path / other).write_bytes(content)
    refusals = (InvalidDatasetError, NotLabeledDatasetError)
    with suppress(*refusals), nothing_happens_outside(tmp_path):
        directory = open_image_directory(tmp_path, "Training dataset")
        for index in range(len(directory)):
            assert directory.path(index).resolve().is_relative_to(tmp_path.resolve())


IMAGES = tuple(
    encode(paint("red", 1, (9, 7)), kind)
    for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
)


@fuzzed
@given(data=mutations_of(*IMAGES))
@pytest.mark.filterwarnings("ignore")
def test_an_image(data: bytes) -> None:
    with suppress(UnreadableImageError):
        assert len(read_size(io.BytesIO(data))) == 2
    with suppress(UnreadableImageError):
        assert decode(io.BytesIO(data), 8).mode == "RGB"


TABLE = b"paths:\n  - file: ./rows.jsonl\ntransformations:\n  - read_json_lines: {encoding: utf8}\n"
ROWS = (
    b'{"image_url": "azureml://subscriptions/a/datastores/b/paths/fridge/a.png", "label": "milk"}\n'
    b'{"image_url": "a.png", "label": "milk", "image_details": {"format": "png"}}\n'
)


@fuzzed
@given(table=mutations_of(TABLE), rows=mutations_of(ROWS), which=st.integers(0, 1))
def test_annotations_of_automl(tmp_path: Path, table: bytes, rows: bytes, which: int) -> None:
    """One of the two files is fuzzed."""
    source, output = tmp_path / "source", tmp_path / "output"
    source.mkdir(exist_ok=True)
    (source / "a.png").write_bytes(IMAGES[0])
    (source / "MLTable").write_bytes((table, TABLE)[which])
    (source / "rows.jsonl").write_bytes((ROWS, rows)[which])
    with (
        suppress(UserError),
        nothing_happens_outside(tmp_path),
        open_source(source, output) as opened,
    ):
        convert(opened, output)
    shutil.rmtree(output, ignore_errors=True)


TRANSFORM_META = b"type: TransformationDirectory\nextension: {}\ntransform_type: Image\n"
TRANSFORMS = (
    b'[["Resize", 256], ["CenterCrop", [[224, 192]]], ["Pad", [[1, 2], 0]],'
    b' ["RandomRotation", {"degrees": 30}], ["ColorJitter", {"brightness": 0.5}],'
    b' ["Grayscale", {}], ["RandomAffine", [0, [0.1, 0.1]]]]'
)


@fuzzed
@given(
    meta=mutations_of(TRANSFORM_META), transforms=mutations_of(TRANSFORMS), which=st.integers(0, 1)
)
def test_a_transformation(tmp_path: Path, meta: bytes, transforms: bytes, which: int) -> None:
    """One of the two files is fuzzed."""
    (tmp_path / "_meta.yaml").write_bytes((meta, TRANSFORM_META)[which])
    (tmp_path / "_transforms.json").write_bytes((TRANSFORMS, transforms)[which])
    with suppress(InvalidTransformationDirectoryError), nothing_happens_outside(tmp_path):
        operations = open_transformation(tmp_path, "Input image transformation").operations
        assert all(OPERATIONS[operation.name] is type(operation) for operation in operations)


NAMES = st.binary(min_size=1, max_size=60).filter(
    lambda name: not {*b"/\0"} & {*name} and name not in (b".", b"..")
)


@fuzzed
@given(
    files=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=6),
    suffix=st.sampled_from([b"", b".png"]),
)
def test_names_in_plain_folders(
    tmp_path: Path, files: list[tuple[bytes, bytes]], suffix: bytes
) -> None:
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    for category, name in files:
        folder = Path(os.fsdecode(os.fsencode(root) + b"/" + category))
        folder.mkdir(exist_ok=True)
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name + suffix)).touch()
    with suppress(InvalidDatasetError), nothing_happens_outside(tmp_path):
        directory = open_image_directory(root, "Training dataset")
        assert all(directory.path(index).is_file() for index in range(len(directory)))
        assert "".join(directory.categories).encode().decode() == "".join(directory.categories)


def archive_of(kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr("dog/a.png", IMAGES[0])
    else:
        mode: Any = f"w:{kind}"
        with tarfile.open(fileobj=buffer, mode=mode) as tar:
            member = tarfile.TarInfo("dog/a.png")
            member.size = len(IMAGES[0])
            tar.addfile(member, io.BytesIO(IMAGES[0]))
    return buffer.getvalue()


ARCHIVES = {
    ".zip": archive_of("zip"),
    ".tar": archive_of(""),
    ".tar.gz": archive_of("gz"),
    ".tar.bz2": archive_of("bz2"),
}


@fuzzed
@given(suffix=st.sampled_from(sorted(ARCHIVES)), data=st.data())
def test_an_archive(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    path, output = tmp_path / f"archive{suffix}", tmp_path / "output"
    path.write_bytes(data.draw(mutations_of(ARCHIVES[suffix])))
    # The names that `rmtree` opens are relative to a folder: here, they seem to be below this one.
    with (
        chdir(tmp_path),
        suppress(UserError),
        nothing_happens_outside(tmp_path),
        open_source(path, output) as source,
    ):
        convert(source, output)
    shutil.rmtree(output, ignore_errors=True)
