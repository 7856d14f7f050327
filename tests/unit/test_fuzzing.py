"""Every reader, given anything: one of the documented errors comes out, or a value; nothing else happens.

FUZZING_EXAMPLES sets how many examples each reader gets.
"""

import io
import os
import pickle
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.painting import encode, paint

from train_pytorch_model.checkpoint import load_checkpoint
from train_pytorch_model.conversion import convert, open_source
from train_pytorch_model.errors import (
    CheckpointError,
    InvalidDatasetError,
    InvalidModelDirectoryError,
    UserError,
)
from train_pytorch_model.formats.files import MalformedFileError, read_json, read_yaml
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, read_size
from train_pytorch_model.image_classifier.weights import WeightsError, read_state_dict
from train_pytorch_model.progress import Silence

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZING_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

META = b"type: ModelDirectory\nextension: {}\nmodel: model_spec.yaml\n"
SPEC = b"""flavor: {name: pytorch, serialization_method: state_dict}
model_file: model
flavor_extras:
  module: azureml.designer.modules.dl.pytorch.initialize_models.vision.classification.resnet
  class: ResNet
  init_params: {model_name: resnet18, pretrained: false, num_classes: 2}
label_map_file: index_to_label.csv
"""
LABELS = b",label\n0,circle\n1,cross\n"
IMAGE_META = b"type: ImageDirectory\nextension: {}\nimage_list: images.lst\nschema: _schema.json\n"
LIST = b'{"image_info": {"file_name": "a.png"}, "category": "dog", "id": 0}\n'
SCHEMA = (
    b'{"columnAttributes": [{"name": "image", "type": "Bytes", "isFeature": true,'
    b' "elementType": {"typeName": "bytes", "isNullable": false},'
    b' "properties": {"mime_type": "image/png", "image_ref": "image_info"}},'
    b' {"name": "category", "type": "String", "isFeature": false,'
    b' "elementType": {"typeName": "str", "isNullable": false},'
    b' "properties": {"annotation_type": "COCO_classification", "categories": [{"id": 0, "name": "dog"}]}}]}'
)


def mutations_of(*originals: bytes) -> st.SearchStrategy[bytes]:
    """Anything, or one of the originals with a piece of it replaced, repeated or left out."""

    @st.composite
    def mutated(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(originals))
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, len(data)))
            end = draw(st.integers(start, min(len(data), start + 40)))
            times = draw(st.sampled_from([0, 0, 1, 2, 50]))
            between = draw(st.one_of(st.binary(max_size=8), st.sampled_from(TOKENS)))
            data = data[:start] + between + data[start:end] * times + data[end:]
        return data

    return st.one_of(mutated(), mutated(), st.binary(max_size=300))


TOKENS = (
    *(
        b"../",
        b"/etc/passwd",
        b"\0",
        b"\xff",
        b"{",
        b"[",
        b'"',
        b": ",
        b"\n",
        b"null",
        b"-1",
        b"1e999",
        b"NaN",
    ),
    *(
        b"!!python/object/apply:os.system [true]",
        b"&a [*a]",
        b"9" * 5000,
        b"[" * 3000,
        "é😀".encode(),
        b"true",
    ),
)

# ── What a reader may do ─────────────────────────────────────────────────────────────────────────

_watched: list[Callable[[str, tuple[Any, ...]], None]] = []


@contextmanager
def nothing_happens_outside(root: Path) -> Iterator[None]:
    """No file elsewhere is opened, nothing is imported from the root, nothing is executed or connected to."""
    wrong: list[str] = []
    allowed = (
        str(root),
        *map(str, {Path(path).resolve() for path in (sys.prefix, sys.base_prefix)}),
        "/proc/",
    )

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith(allowed) and "/train_pytorch_model/" not in path:
                wrong.append(f"open {path}")
        elif event in (
            "os.system",
            "subprocess.Popen",
            "os.exec",
            "os.posix_spawn",
            "socket.connect",
            "os.fork",
        ):
            wrong.append(f"{event} {arguments}")
        elif event == "import" and str(arguments[0]).split(".")[0] in ("evil", "azureml"):
            wrong.append(f"import {arguments[0]}")

    if not _watched:
        sys.addaudithook(lambda event, arguments: [each(event, arguments) for each in _watched] and None)
    _watched.append(watch)
    try:
        yield
    finally:
        _watched.remove(watch)
    assert not wrong


def test_the_watch_notices(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").touch()
    with pytest.raises(AssertionError), nothing_happens_outside(tmp_path / "root"):
        (tmp_path / "outside").read_bytes()
    with nothing_happens_outside(tmp_path / "root"):
        (tmp_path / "root" / "inside").write_text("")


@fuzzed
@given(data=mutations_of(META, SPEC, IMAGE_META))
def test_yaml(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.yaml").write_bytes(data)
    with suppress(MalformedFileError), nothing_happens_outside(tmp_path):
        assert isinstance(read_yaml(tmp_path / "a.yaml"), dict)


@fuzzed
@given(data=mutations_of(SCHEMA, LIST))
def test_json(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with suppress(MalformedFileError), nothing_happens_outside(tmp_path):
        assert isinstance(read_json(tmp_path / "a.json", dict), dict)


@fuzzed
@given(meta=mutations_of(META), spec=mutations_of(SPEC), labels=mutations_of(LABELS), which=st.integers(0, 2))
def test_a_model_directory(tmp_path: Path, meta: bytes, spec: bytes, labels: bytes, which: int) -> None:
    """One of its files is anything."""
    files = {"_meta.yaml": META, "model_spec.yaml": SPEC, "index_to_label.csv": LABELS, "model": b""}
    name = ("_meta.yaml", "model_spec.yaml", "index_to_label.csv")[which]
    for other, content in (files | {name: (meta, spec, labels)[which]}).items():
        (tmp_path / other).write_bytes(content)
    with suppress(InvalidModelDirectoryError), nothing_happens_outside(tmp_path):
        assert open_model_directory(tmp_path, "Untrained model").architecture == "resnet18"


@fuzzed
@given(
    meta=mutations_of(IMAGE_META),
    rows=mutations_of(LIST),
    schema=mutations_of(SCHEMA),
    which=st.integers(0, 2),
)
def test_an_image_directory(tmp_path: Path, meta: bytes, rows: bytes, schema: bytes, which: int) -> None:
    """One of its files is anything. Files are counted as inside by where they really are."""
    (tmp_path / "a.png").write_bytes(b"")
    files = {"_meta.yaml": IMAGE_META, "images.lst": LIST, "_schema.json": SCHEMA, "_samples.json": b"[]"}
    name = ("_meta.yaml", "images.lst", "_schema.json")[which]
    for other, content in (files | {name: (meta, rows, schema)[which]}).items():
        (tmp_path / other).write_bytes(content)
    with suppress(InvalidDatasetError), nothing_happens_outside(tmp_path):
        directory = open_image_directory(tmp_path, "Training dataset")
        for index in range(len(directory)):
            assert directory.path(index).resolve().is_relative_to(tmp_path.resolve())


def pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


WEIGHTS = (
    pickled({"model.fc.weight": torch.zeros(2, 3)}),
    pickled(torch.nn.Linear(2, 2)),
    pickled({"a": _Evil()}),
    pickle.dumps({"a": _Evil()}),
    pickle.dumps({"a": 1}, protocol=0),
)


@fuzzed
@given(data=mutations_of(*WEIGHTS))
@pytest.mark.filterwarnings("ignore")
def test_weights(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model").write_bytes(data)
    with suppress(WeightsError), nothing_happens_outside(tmp_path):
        assert all(
            isinstance(each, torch.Tensor) for each in read_state_dict(tmp_path / "model", 1 << 20).values()
        )


@pytest.mark.parametrize("data", WEIGHTS[1:])
@pytest.mark.filterwarnings("ignore")
def test_weights_with_more_than_tensors_are_refused_and_not_executed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model").write_bytes(data)
    with nothing_happens_outside(tmp_path), pytest.raises(WeightsError):
        read_state_dict(tmp_path / "model", 1 << 20)


IMAGES = tuple(
    encode(paint("red", 1, (9, 7)), kind) for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
)


@fuzzed
@given(data=mutations_of(*IMAGES))
@pytest.mark.filterwarnings("ignore")
def test_an_image(data: bytes) -> None:
    with suppress(UnreadableImageError):
        assert len(read_size(io.BytesIO(data))) == 2
    with suppress(UnreadableImageError):
        assert decode(io.BytesIO(data), 8).mode == "RGB"


@fuzzed
@given(
    manifest=mutations_of(b'{"content": {"size": 3, "sha256": "", "values": {}}, "sha256": ""}'),
    data=st.binary(),
)
def test_a_checkpoint(tmp_path: Path, manifest: bytes, data: bytes) -> None:
    (tmp_path / "000001-00000000.json").write_bytes(manifest)
    (tmp_path / "000001-00000000.safetensors").write_bytes(data)
    with nothing_happens_outside(tmp_path), pytest.raises(CheckpointError):
        load_checkpoint(tmp_path, lambda _: None)


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


@pytest.mark.parametrize("suffix", ARCHIVES)
@fuzzed
@given(data=st.data())
def test_an_archive(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    path, output = tmp_path / f"archive{suffix}", tmp_path / "output"
    path.write_bytes(data.draw(mutations_of(ARCHIVES[suffix])))
    with suppress(UserError), nothing_happens_outside(tmp_path), open_source(path) as source:
        convert(source, output, Silence())
    shutil.rmtree(output, ignore_errors=True)
