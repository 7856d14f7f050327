"""How `submit` downloads the trained model of a completed job: whole or not at all."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.programs.azure_service import (
    AzureService,
    Call,
)
from tests.programs.program import assert_refused
from tests.programs.submitting import (
    DATA,
    MODEL,
    ON_A_WORKSTATION,
    give_jobs_the_model,
    submit,
)
from train_pytorch_model.formats.trained_directory import write_manifest

pytestmark = ON_A_WORKSTATION


def trained(service: AzureService, tmp_path: Path, more: Mapping[str, str] | None = None) -> None:
    """Make every job of the service write a model, and more files of the given contents."""
    root = tmp_path / "made"
    (root / "code").mkdir(parents=True)
    (root / "model").write_bytes(b"weights")
    (root / "code" / "serving.py").write_text("")
    for name, text in (more or {}).items():
        (root / name).write_text(text)
    write_manifest(root, {})
    (root / "_meta.yaml").write_text("type: ModelDirectory\n")

    give_jobs_the_model(service, root)


def test_the_trained_model_is_downloaded(service: AzureService, tmp_path: Path) -> None:
    trained(service, tmp_path)
    ended = submit(*DATA, *MODEL, "--download", tmp_path / "new" / "model")
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.endswith(f"The trained model is in {tmp_path}/new/model\n")
    names = {path.name for path in (tmp_path / "new" / "model").iterdir()}
    assert names == {"_meta.yaml", "manifest.json", "model", "code"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model"]


@pytest.mark.parametrize("is_downloaded", [True, False])
def test_a_registered_model_gets_its_card_and_tags(
    is_downloaded: bool, service: AzureService, tmp_path: Path
) -> None:
    made = {"description": "# Card", "tags": {"base_model_name": "resnet18"}}
    trained(service, tmp_path, {"azureml_model.yaml": yaml.safe_dump(made)})
    download = ("--download", tmp_path / "model") if is_downloaded else ()
    ended = submit(*DATA, *MODEL, "--register", "flowers", *download)
    assert (ended.status, ended.stderr) == (0, "")
    assert "Warning" not in ended.stdout
    (call,) = (
        call
        for call in service.calls
        if (call.method, call.path[-18:]) == ("PUT", "flowers/versions/1")
    )
    assert made.items() <= call.body["properties"].items()


def test_a_registered_model_without_a_card_costs_a_warning(
    service: AzureService, tmp_path: Path
) -> None:
    trained(service, tmp_path)
    ended = submit(*DATA, *MODEL, "--register", "flowers")
    assert (ended.status, ended.stderr) == (0, "")
    assert "Warning: The model registered as flowers has no description: " in ended.stdout


def test_an_existing_empty_directory_is_filled_in_place(
    service: AzureService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mounted directory, for one, cannot be replaced."""
    trained(service, tmp_path)
    model = tmp_path / "model"
    model.mkdir()
    monkeypatch.chdir(model)
    before = model.stat().st_ino
    ended = submit(*DATA, *MODEL, "--download", ".")
    assert (ended.status, ended.stderr) == (0, "")
    assert model.stat().st_ino == before
    assert {path.name for path in model.iterdir()} == {
        "_meta.yaml",
        "manifest.json",
        "model",
        "code",
    }


def test_a_directory_that_was_filled_in_the_meantime_is_left_alone(
    service: AzureService, tmp_path: Path
) -> None:
    trained(service, tmp_path)
    write = service.fault

    def fill(call: Call) -> None:
        write(call)
        if call.method == "GET" and "/jobs/" in call.path:
            (tmp_path / "model").mkdir(exist_ok=True)
            (tmp_path / "model" / "notes.txt").write_text("mine")

    service.fault = fill
    ended = submit(*DATA, *MODEL, "--download", tmp_path / "model")
    assert_refused(
        ended, 2, f"OutputDirectoryError: --download {tmp_path}/model is not empty: it holds"
    )
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["notes.txt"]
    assert (
        f"Job {service.job['name']} is complete. Its model can still be downloaded:\n"
        in ended.stdout
    )
    assert (
        f"  az ml job download --name {service.job['name']} --output-name trained_model --s"
        in ended.stdout
    )


def test_a_damaged_download_is_refused_and_leaves_nothing(
    service: AzureService, tmp_path: Path
) -> None:
    trained(service, tmp_path)
    (tmp_path / "made" / "model").write_bytes(b"others!")
    (tmp_path / "made" / "code" / "serving.py").unlink()
    (tmp_path / "downloads" / "model").mkdir(parents=True)
    ended = submit(*DATA, *MODEL, "--download", tmp_path / "downloads" / "model")
    assert_refused(
        ended,
        4,
        "ServiceError: The downloaded model of job ",
        " is damaged:\n  code/serving.py is missing.\n  model has changed since it was written\n",
    )
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["model"]
    assert list((tmp_path / "downloads" / "model").iterdir()) == []


def test_a_full_disk_is_reported(service: AzureService, tmp_path: Path) -> None:
    trained(service, tmp_path)
    write, full = service.fault, OSError(28, "No space left on device")
    service.fault = lambda call: (
        full
        if call.method == "GET" and call.path.startswith("/container/azureml/")
        else write(call)
    )
    ended = submit(*DATA, *MODEL, "--download", tmp_path / "model")
    assert_refused(
        ended, 4, "ServiceError: Downloading the model of job ", "No space left on device\n"
    )
    assert not (tmp_path / "model").exists()


@pytest.mark.usefixtures("service")
def test_a_job_without_a_model_is_reported(tmp_path: Path) -> None:
    ended = submit(*DATA, *MODEL, "--download", tmp_path / "model")
    assert_refused(ended, 4, "ServiceError: The downloaded model of job ", "_meta.yaml is missing")
    assert not (tmp_path / "model").exists()
