"""Every reader, given anything: one of the documented errors comes out, or a value; nothing else happens.

FUZZING_EXAMPLES sets how many examples each reader gets.
"""

import io
import os
import pickle
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.painting import encode, paint

from train_pytorch_model import exported_program, run_lock
from train_pytorch_model.checkpoint import load_checkpoint
from train_pytorch_model.conversion import convert, open_source
from train_pytorch_model.errors import (
    CheckpointError,
    InvalidDatasetError,
    InvalidModelDirectoryError,
    InvalidTransformationDirectoryError,
    NotLabeledDatasetError,
    OutputDirectoryError,
    UserError,
)
from train_pytorch_model.formats.files import MalformedFileError, read_json, read_yaml
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.formats.transformation_directory import open_transformation
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, read_size
from train_pytorch_model.image_classifier.weights import WeightsError, read_state_dict
from train_pytorch_model.image_operations import OPERATIONS
from train_pytorch_model.manifest import differences, published_fingerprint
from train_pytorch_model.progress import Silence
from train_pytorch_model.run_folder import RunFolder

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
    refusals = (InvalidDatasetError, NotLabeledDatasetError)
    with suppress(*refusals), nothing_happens_outside(tmp_path):
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


TABLE = b"paths:\n  - file: ./rows.jsonl\ntransformations:\n  - read_json_lines: {encoding: utf8}\n"
ROWS = (
    b'{"image_url": "azureml://subscriptions/a/datastores/b/paths/fridge/a.png", "label": "milk"}\n'
    b'{"image_url": "a.png", "label": "milk", "image_details": {"format": "png"}}\n'
)


@fuzzed
@given(table=mutations_of(TABLE), rows=mutations_of(ROWS), which=st.integers(0, 1))
def test_annotations_of_automl(tmp_path: Path, table: bytes, rows: bytes, which: int) -> None:
    """One of the two files is anything."""
    source, output = tmp_path / "source", tmp_path / "output"
    source.mkdir(exist_ok=True)
    (source / "a.png").write_bytes(IMAGES[0])
    (source / "MLTable").write_bytes((table, TABLE)[which])
    (source / "rows.jsonl").write_bytes((ROWS, rows)[which])
    with suppress(UserError), nothing_happens_outside(tmp_path), open_source(source) as opened:
        convert(opened, output, Silence())
    shutil.rmtree(output, ignore_errors=True)


TRANSFORM_META = b"type: TransformationDirectory\nextension: {}\ntransform_type: Image\n"
TRANSFORMS = (
    b'[["Resize", 256], ["CenterCrop", [[224, 192]]], ["Pad", [[1, 2], 0]],'
    b' ["RandomRotation", {"degrees": 30}], ["ColorJitter", {"brightness": 0.5}],'
    b' ["Grayscale", {}], ["RandomAffine", [0, [0.1, 0.1]]]]'
)


@fuzzed
@given(meta=mutations_of(TRANSFORM_META), transforms=mutations_of(TRANSFORMS), which=st.integers(0, 1))
def test_a_transformation(tmp_path: Path, meta: bytes, transforms: bytes, which: int) -> None:
    """One of the two files is anything."""
    (tmp_path / "_meta.yaml").write_bytes((meta, TRANSFORM_META)[which])
    (tmp_path / "_transforms.json").write_bytes((TRANSFORMS, transforms)[which])
    with suppress(InvalidTransformationDirectoryError), nothing_happens_outside(tmp_path):
        operations = open_transformation(tmp_path, "Input image transformation").operations
        assert all(OPERATIONS[operation.name] is type(operation) for operation in operations)


PROGRAM = (
    b'{"config": {"fc.weight": {"path_name": "weight_0", "use_pickle": false, "tensor_meta": {"dtype": 7,'
    b' "sizes": [{"as_int": 2}, {"as_int": 3}], "strides": [{"as_int": 3}, {"as_int": 1}],'
    b' "storage_offset": {"as_int": 0}}}}}'
)


def program_of(config: bytes, compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        file.writestr(f"program{exported_program.CONFIG}", config)
        file.writestr("program/data/weights/weight_0", bytes(24))
    return buffer.getvalue()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
@fuzzed
@given(data=st.data(), is_whole=st.booleans())
def test_an_exported_program(tmp_path: Path, compression: int, data: st.DataObject, is_whole: bool) -> None:
    """Its list of weights is anything, or the file as a whole."""
    if is_whole:
        content = program_of(data.draw(mutations_of(PROGRAM)), compression)
    else:
        content = data.draw(mutations_of(program_of(PROGRAM, compression)))
    path = tmp_path / "program.pt2"
    path.write_bytes(content)
    with suppress(WeightsError), nothing_happens_outside(tmp_path):
        if exported_program.is_exported_program(path):
            state = exported_program.read_exported_weights(path, 1 << 20)
            assert all(isinstance(each, torch.Tensor) for each in state.values())


MANIFEST = b'{"files": {"model": {"size": 0, "sha256": ""}}, "fingerprint": {"parameters": "--epochs 5"}}'


@fuzzed
@given(manifest=mutations_of(MANIFEST))
def test_the_manifest_of_a_trained_directory(tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / "_meta.yaml").write_bytes(META)
    (tmp_path / "manifest.json").write_bytes(manifest)
    with nothing_happens_outside(tmp_path):
        assert differences(tmp_path) or manifest != MANIFEST
        published_fingerprint(tmp_path)


CONFIG = b'{"token": "0123", "fingerprint": {"parameters": "--epochs 5", "training_dataset": "4567"}}'
NOW = {"parameters": "--epochs 6", "training_dataset": "4567"}


@fuzzed
@given(config=mutations_of(CONFIG), images=mutations_of(b"8"), lock=mutations_of(b'{"host": "a", "pid": 1}'))
def test_what_a_run_has_left(tmp_path: Path, config: bytes, images: bytes, lock: bytes) -> None:
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    files = {"config.json": config, "micro_batch": images, "lock": lock, "checkpoints/000001-0.json": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    run = RunFolder(tmp_path)
    with nothing_happens_outside(tmp_path):
        assert isinstance(run.token, str)
        assert (run.read_micro_batch() or 1) >= 1
        with pytest.raises(OutputDirectoryError):
            run.check_resumable(NOW)
        with (
            suppress(OutputDirectoryError),
            patch.object(run_lock, "SILENCE_S", 0.0),
            run_lock.run_lock(tmp_path, "--trained-model"),
        ):
            assert b'"pid"' in (tmp_path / "lock").read_bytes()


NAMES = st.binary(min_size=1, max_size=60).filter(
    lambda name: not {*b"/\0"} & {*name} and name not in (b".", b"..")
)


@fuzzed
@given(
    files=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=6), suffix=st.sampled_from([b"", b".png"])
)
def test_names_in_plain_folders(tmp_path: Path, files: list[tuple[bytes, bytes]], suffix: bytes) -> None:
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


@pytest.mark.parametrize("suffix", ARCHIVES)
@fuzzed
@given(data=st.data())
def test_an_archive(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    path, output = tmp_path / f"archive{suffix}", tmp_path / "output"
    path.write_bytes(data.draw(mutations_of(ARCHIVES[suffix])))
    with suppress(UserError), nothing_happens_outside(tmp_path), open_source(path) as source:
        convert(source, output, Silence())
    shutil.rmtree(output, ignore_errors=True)
