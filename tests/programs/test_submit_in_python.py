"""`submit` as a notebook uses it: the steps of the classic tutorial, each a call of Python."""

import inspect
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.model_directories import HALF, write_model
from tests.painting import paint, paint_folders
from tests.programs.azure_service import AzureService, Call
from tests.programs.submitting import ON_A_WORKSTATION, give_jobs_the_model
from tests.weights_files import write_weights
from train_pytorch_model import find_job, load, submit
from train_pytorch_model.commands.submit import Submit
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import (
    InvalidDatasetError,
    InvalidModelDirectoryError,
    OutputDirectoryError,
    ParameterError,
    UserError,
)
from train_pytorch_model.formats.trained_directory import write_manifest

pytestmark = ON_A_WORKSTATION
CLOUD = {"training_dataset": "azureml:flowers:1", "validation_dataset": "azureml:flowers:2"}
CARD = {"name": "trained-model", "type": "mlflow_model", "path": ".", "description": "# Card"}


@pytest.fixture(autouse=True)
def _in_python(service: AzureService) -> Any:  # noqa: ARG001
    with for_command_line(False):
        yield


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A small trained model, as a job writes it."""
    architecture = "mobilenet_v3_small"
    recipe = Recipe(image_size=16, mean=HALF, std=HALF)
    root = write_model(tmp_path / "made", recipe, False, ("x", "y"), architecture)
    write_weights(root, architecture, 2)
    (root / "azureml_model.yaml").write_text(yaml.safe_dump(CARD | {"tags": {"task": "flowers"}}))
    write_manifest(root, {})
    return root


def test_a_notebook_submits_waits_downloads_and_predicts(
    service: AzureService, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.statuses = ["Queued", "Queued", "Running", "Completed"]
    service.log = "Epoch 1/5\n"
    give_jobs_the_model(service, trained)
    images = paint_folders(tmp_path / "images", 2)
    with caplog.at_level(logging.INFO, "train_pytorch_model"):
        job = submit(
            training_dataset=images,
            validation_dataset=str(images),
            architecture="resnet18",
            epochs=np.int64(7),
            tags={"team": "flowers"},
            register="flowers",
        )
        assert job.wait() is job
        model = job.download(tmp_path / "model")
    inputs = service.job["properties"]["jobs"]["train"]["inputs"]
    assert inputs["epochs"]["value"] == "7"
    assert service.job["properties"]["tags"] == {"team": "flowers"}
    assert job.url.startswith("https://ml.azure.com/")
    assert job.url in job._repr_html_()
    fault = service.fault
    service.fault = lambda _: (503, {"error": {"code": "Busy", "message": "Later & <again>."}})
    assert "Later &amp; &lt;again&gt;." in job._repr_html_()
    service.fault = fault
    lines = "\n".join(caplog.messages)
    for line in (
        f"Later: `job = find_job({job.name!r})`",
        "] Queued: waiting for nodes of the cluster",
        "] Completed",
        "The trained model is registered as flowers",
    ):
        assert line in lines
    assert model.root == tmp_path / "model"
    assert list(model.predict(np.asarray(paint("red", 1)))["label"]) in (["x"], ["y"])
    (described,) = (call for call in service.calls if call.path.endswith("flowers/versions/1"))
    assert described.body["properties"]["description"] == "# Card"


def test_every_option_of_the_command_line_is_one_in_python_or_a_method() -> None:
    options = {option.name for kind in (Submit, TrainConfig) for option in fields(kind)}
    of_the_job = {"wait_limit", "download", "dry_run", "quiet", "parameters"}
    assert {*inspect.signature(submit).parameters} == options - of_the_job


def test_what_cannot_be_sent_is_an_exception_before_any_request(
    service: AzureService, tmp_path: Path
) -> None:
    submit_anything: Any = submit
    for options, sentence in (
        ({"download": "model"}, r"use job.download\(FOLDER\)"),
        ({"lr": 0.1}, "submit has no option 'lr'. Did you mean 'learning_rate'"),
        ({"epochs": "5"}, "`epochs` should be an integer; it is '5'"),
        ({"tags": [1]}, "`tags` should be texts"),
        (CLOUD, "Give either `untrained_model`, to train that, or `architecture`"),
        ({"architecture": "resnet18"}, "`training_dataset` and `validation_dataset` are required"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            submit_anything(**options)
    nowhere = {"training_dataset": tmp_path / "no", "validation_dataset": "azureml:flowers:2"}
    with pytest.raises(InvalidDatasetError, match="no such directory"):
        submit_anything(**nowhere, architecture="resnet18")
    assert service.calls == []


def test_a_job_is_found_later_and_gives_its_model_only_when_it_is_complete(
    service: AzureService, tmp_path: Path
) -> None:
    name = submit(**CLOUD, architecture="resnet18").name
    job = find_job(name)
    service.statuses = ["Running"]
    with pytest.raises(UserError, match=r"is Running, and its model comes with its end. `job.wai"):
        job.download(tmp_path / "model")
    service.statuses = ["Failed"]
    for method in (job.wait, lambda: job.download(tmp_path / "model")):
        with pytest.raises(UserError, match=f"Job {name} is Failed.* Its logs: https://ml.azure"):
            method()
    with pytest.raises(OutputDirectoryError, match=f"^`folder` {tmp_path.parent} is not empty"):
        job.download(tmp_path.parent)
    with pytest.raises(ParameterError, match="`limit` should not be negative"):
        job.wait(-1)

    def nowhere(call: Call) -> Any:
        error = {"error": {"code": "NotFound", "message": "no"}}
        return (404, error) if "/jobs/" in call.path else None

    service.fault = nowhere
    with pytest.raises(ParameterError, match="There is no job other in workspace workspace"):
        find_job("other")


def test_an_interrupt_stops_the_waiting_and_not_the_job(
    service: AzureService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "train_pytorch_model")
    job = submit(**CLOUD, architecture="resnet18")

    def interrupt(call: Call) -> None:
        if call.method == "GET" and "/jobs/" in call.path:
            raise KeyboardInterrupt

    service.fault = interrupt
    with pytest.raises(KeyboardInterrupt):
        job.wait()
    *_, state, waiting, cancelling = caplog.messages
    assert state.startswith(f"Job {job.name} continues: https://ml.azure.com/")
    assert (waiting[:12], cancelling[:14]) == ("  job.wait()", "  job.cancel()")


def test_a_job_is_cancelled_unless_it_has_ended(
    service: AzureService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "train_pytorch_model")
    job = submit(**CLOUD, architecture="resnet18")
    job.cancel()
    assert caplog.messages[-1].endswith("is Completed: there is nothing to cancel.")
    service.statuses = ["Running"]
    job.cancel()
    assert service.calls[-1].method == "POST"
    assert service.calls[-1].path.endswith(f"/jobs/{job.name}/cancel")
    assert caplog.messages[-1].startswith(f"Job {job.name} is being cancelled")


def test_a_model_registers_itself_with_its_card(service: AzureService, trained: Path) -> None:
    model = load(trained)
    assert model.register("flowers", workspace_name="workspace") == "azureml:flowers:1"
    (call,) = (call for call in service.calls if "PUT /models/flowers/" in str(call))
    assert call.body["properties"]["description"] == "# Card"
    assert call.body["properties"]["tags"] == {"task": "flowers"}
    assert "made/model" in service.uploaded()
    for name, options, sentence in (
        ("a b", {}, "`name` 'a b' is not a valid name"),
        ("flowers", {"workspace": "w"}, "register has no option 'workspace'"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            model.register(name, **options)
    (trained / "azureml_model.yaml").unlink()
    with pytest.raises(InvalidModelDirectoryError, match=r"azureml_model\.yaml is missing"):
        model.register("flowers")
