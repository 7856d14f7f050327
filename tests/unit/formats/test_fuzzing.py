"""Fuzzing of the readers of models and runs: they give a value or a documented error, and nothing
else.
"""

import io
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzzing import IMAGE_META, LIST, SCHEMA, fuzzed, mutations_of, nothing_happens_outside

from train_pytorch_model.errors import (
    CheckpointError,
    InvalidModelDirectoryError,
    OutputDirectoryError,
)
from train_pytorch_model.formats import run_lock
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.formats.reading import MalformedFileError, read_json, read_yaml
from train_pytorch_model.formats.run_folder import RunFolder
from train_pytorch_model.formats.trained_directory import differences, published_fingerprint
from train_pytorch_model.image_classifier.weights import WeightsError, read_state_dict
from train_pytorch_model.training.checkpoint_files import load_checkpoint

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


def test_the_watch_detects_access_outside(tmp_path: Path) -> None:
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
@given(
    meta=mutations_of(META),
    spec=mutations_of(SPEC),
    labels=mutations_of(LABELS),
    which=st.integers(0, 2),
)
def test_a_model_directory(
    tmp_path: Path, meta: bytes, spec: bytes, labels: bytes, which: int
) -> None:
    """One of its files is fuzzed."""
    files = {
        "_meta.yaml": META,
        "model_spec.yaml": SPEC,
        "index_to_label.csv": LABELS,
        "model": b"",
    }
    name = ("_meta.yaml", "model_spec.yaml", "index_to_label.csv")[which]
    for other, content in (files | {name: (meta, spec, labels)[which]}).items():
        (tmp_path / other).write_bytes(content)
    with suppress(InvalidModelDirectoryError), nothing_happens_outside(tmp_path):
        assert open_model_directory(tmp_path, "Untrained model").architecture == "resnet18"


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
            isinstance(each, torch.Tensor)
            for each in read_state_dict(tmp_path / "model", 1 << 20).values()
        )


@pytest.mark.parametrize("data", WEIGHTS[1:])
@pytest.mark.filterwarnings("ignore")
def test_weights_with_more_than_tensors_are_refused_and_not_executed(
    tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "model").write_bytes(data)
    with nothing_happens_outside(tmp_path), pytest.raises(WeightsError):
        read_state_dict(tmp_path / "model", 1 << 20)


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


MANIFEST = (
    b'{"files": {"model": {"size": 0, "sha256": ""}}, "fingerprint": {"parameters": "--epochs 5"}}'
)


@fuzzed
@given(manifest=mutations_of(MANIFEST))
def test_the_manifest_of_a_trained_directory(tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / "_meta.yaml").write_bytes(META)
    (tmp_path / "manifest.json").write_bytes(manifest)
    with nothing_happens_outside(tmp_path):
        assert differences(tmp_path) or manifest != MANIFEST
        published_fingerprint(tmp_path)


CONFIG = (
    b'{"token": "0123", "fingerprint": {"parameters": "--epochs 5", "training_dataset": "4567"}}'
)
LOCK = b"filelock/2\npid=1\nhost=a\nmode=lease\ntoken=0123\nduration=0.02\n"
NOW = {"parameters": "--epochs 6", "training_dataset": "4567"}


@fuzzed
@given(config=mutations_of(CONFIG), images=mutations_of(b"8"), lock=mutations_of(LOCK))
def test_the_files_of_a_run(tmp_path: Path, config: bytes, images: bytes, lock: bytes) -> None:
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    files = {
        "config.json": config,
        "micro_batch": images,
        "lock": lock,
        "checkpoints/000001-0.json": b"",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    run = RunFolder(tmp_path)
    with nothing_happens_outside(tmp_path):
        assert isinstance(run.token, str)
        assert (run.read_micro_batch(NOW, fresh=False) or 1) >= 1
        with pytest.raises(OutputDirectoryError):
            run.check_resumable(NOW)
        with (
            suppress(OutputDirectoryError),
            patch.multiple(run_lock, SILENCE_S=0.02, POLL_S=0.01, TRY_S=0.0),
            run_lock.run_lock(tmp_path),
        ):
            assert b"pid=" in (tmp_path / "lock").read_bytes()
