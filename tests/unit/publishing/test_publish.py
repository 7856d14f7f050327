"""The samples of training images in a trained directory."""

import errno
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mlflow.exceptions import MlflowException
from tests.image_directories import open_three
from tests.logs import warnings_in
from tests.model_directories import HALF

from train_pytorch_model.formats.run_folder import RunFolder
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.publishing import publish
from train_pytorch_model.publishing.publish import samples_of
from train_pytorch_model.tracking import save_model


def test_samples_are_the_first_rows_with_their_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = samples_of(open_three(tmp_path))
    assert [(sample["id"], sample["category"]) for sample in samples] == [
        (0, "große"),
        (1, "b"),
        (2, "große"),
    ]
    assert capsys.readouterr().err == ""


def endless_number(image_list: Path) -> None:
    image_list.write_text(image_list.read_text().replace('"id": 0', f'"id": {"9" * 5000}'))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (endless_number, "images.lst:1: the row cannot be read: Exceeds the limit (4300 digits)"),
        (Path.unlink, "No such file or directory"),
    ],
)
def test_an_unreadable_image_list_does_not_prevent_writing_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[Path], None], reason: str
) -> None:
    images = open_three(tmp_path)
    change(images.root / "images.lst")
    assert samples_of(images) == []
    (warning,) = warnings_in(caplog)
    assert warning.startswith("_samples.json shows no images: ")
    assert reason in warning
    assert warning.endswith(". The model is not affected.")


@pytest.mark.filterwarnings("ignore:.*Any type hint:UserWarning")  # of the import of mlflow
def test_an_mlflow_model_is_written_where_it_is_built_and_a_full_disk_is_an_oserror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(written: Path, **_: object) -> None:
        assert written.is_relative_to(tmp_path)
        raise MlflowException("Failed to copy") from OSError(
            errno.ENOSPC, "No space left on device"
        )

    (tmp_path / "model").touch()
    spec = ClassifierSpec("resnet18", False, ("a", "b"), Framing(32, 32, 1.0), HALF, HALF)
    # By name, mlflow's stand-in for the module would be changed, which the first import replaces.
    monkeypatch.setattr(importlib.import_module("mlflow.pyfunc"), "save_model", fill)
    with pytest.raises(OSError, match="No space left"):
        save_model.save_model(tmp_path, spec, "", {})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_too_little_memory_for_degraded_images_does_not_prevent_writing_the_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problem = "DefaultCPUAllocator: can't allocate memory"

    def run_out(*_: object) -> None:
        raise RuntimeError(problem)

    monkeypatch.setattr(publish, "_trial", run_out)
    monkeypatch.setattr(publish, "validation_histograms", lambda *given: given[-1])
    nothing: Any = SimpleNamespace(evaluated=None, energies=None)
    assert publish._histograms(Path(), nothing, nothing, nothing, nothing) is None
    assert "The model is not affected" in caplog.text
    problem = "the network is wrong"
    with pytest.raises(RuntimeError, match=problem):
        publish._histograms(Path(), nothing, nothing, nothing, nothing)


@pytest.mark.parametrize(("free", "is_temporary"), [(200 << 20, True), (1 << 20, False)])
def test_a_model_too_large_for_the_temporary_folder_is_built_beside_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_temporary: bool
) -> None:
    monkeypatch.setattr(publish, "disk_usage", lambda _: SimpleNamespace(free=free))
    run: Any = SimpleNamespace(folder=RunFolder.beside(tmp_path / "trained"))
    state: Any = SimpleNamespace(best=SimpleNamespace(weights={"a": torch.zeros(1000)}))
    where = publish._local_folder(run, state)
    assert where == (Path(gettempdir()) if is_temporary else tmp_path / "trained.run")
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert publish._local_folder(run, state) == tmp_path / "trained.run"
