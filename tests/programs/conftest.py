"""Painted folders and models trained on them, created once for all program tests; read-only."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from requests.adapters import HTTPAdapter

from tests.programs.azure_service import (
    GROUP,
    SUBSCRIPTION,
    WORKSPACE,
    AzureService,
    Credential,
    cluster,
)
from tests.programs.chromium import BROWSER, Tab, open_tab
from tests.programs.program import Ended, run_program, train_arguments
from tests.programs.submitting import T4
from tests.trainings import SMALL


@dataclass(frozen=True)
class Trained:
    """A completed training run."""

    arguments: list[str]
    output: Path
    ended: Ended


@pytest.fixture(scope="session", autouse=True)
def _tracking_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set a store, and hide GPUs, for the session fixtures below: a test's own store is set after
    them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path_factory.getbasetemp() / 'mlflow.db'}"
        )
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A tab of a headless browser, which the tests of a session share."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    with open_tab(BROWSER, tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network that computes in float32."""
    return _init_model(tmp_path_factory, "--precision", "float32")


@pytest.fixture(scope="session")
def frozen_untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network with a frozen backbone and without augmentation."""
    return _init_model(
        tmp_path_factory,
        *(
            "--precision",
            "float32",
            "--freeze-backbone",
            "--augmentation",
            "none",
            "--horizontal-flip",
            "False",
        ),
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, folders: Path, untrained: Path) -> Trained:
    """A training of two epochs, with a log line every step."""
    options = ("--epochs", "2", "--random-seed", "42", "--print-frequency", "1")
    return _train(tmp_path_factory, folders, untrained, *options)


@pytest.fixture(scope="session")
def trained_again(
    tmp_path_factory: pytest.TempPathFactory, folders: Path, untrained: Path
) -> Trained:
    """The same training again, quietly."""
    options = ("--epochs", "2", "--random-seed", "42", "--print-frequency", "2", "--quiet")
    return _train(tmp_path_factory, folders, untrained, *options)


@pytest.fixture(scope="session")
def other_seed(tmp_path_factory: pytest.TempPathFactory, folders: Path, untrained: Path) -> Trained:
    """The same training with another seed."""
    return _train(tmp_path_factory, folders, untrained, "--epochs", "2", "--random-seed", "43")


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory, folders: Path) -> Trained:
    """An early-stopped training: its learning rate rises too far, so the last epoch is not the
    best.
    """
    untrained = _init_model(tmp_path_factory, "--precision", "float32", "--augmentation", "none")
    options = (
        "--epochs",
        "12",
        "--warmup-step-number",
        "12",
        "--learning-rate",
        "0.03",
        "--patience",
        "2",
    )
    return _train(tmp_path_factory, folders, untrained, *options)


@pytest.fixture(scope="session")
def frozen(
    tmp_path_factory: pytest.TempPathFactory, folders: Path, frozen_untrained: Path
) -> Trained:
    """A training of the head alone."""
    return _train(
        tmp_path_factory, folders, frozen_untrained, "--epochs", "1", "--learning-rate", "0.1"
    )


def _init_model(tmp_path_factory: pytest.TempPathFactory, *options: str) -> Path:
    output = tmp_path_factory.mktemp("untrained") / "small"
    small = ("--architecture", SMALL, "--image-size", "32")
    ended = run_program("init-model", *small, *options, "--output", output)
    assert ended.status == 0, ended.stderr
    return output


def _train(
    tmp_path_factory: pytest.TempPathFactory, folders: Path, untrained_model: Path, *options: str
) -> Trained:
    output = tmp_path_factory.mktemp("training") / "trained model"
    arguments = train_arguments(folders, untrained_model, output, *options)
    ended = run_program(*arguments)
    assert ended.status == 0, ended.stderr
    return Trained(arguments, output, ended)


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """A path for the trained model; checks that the test leaves nothing there."""
    path = tmp_path / "results" / "trained"
    yield path
    assert not path.parent.exists()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AzureService:
    """A workspace with a cluster of at most four single-GPU nodes; every reading of the clock
    advances it.
    """
    from azure.ai.ml.operations._run_history_constants import RunHistoryConstants
    from azure.core.pipeline.transport import RequestsTransport

    from train_pytorch_model.azure import service, watch

    azure_service = AzureService(computes={"gpu-cluster": cluster("gpu-cluster", T4, 4)})
    now = itertools.count(0.0, watch.POLL_S)
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr(watch, "time", clock)
    monkeypatch.setattr(service, "DefaultAzureCredential", Credential)
    monkeypatch.setattr(
        HTTPAdapter, "send", lambda adapter, request, **_: azure_service.send(adapter, request)
    )
    monkeypatch.setattr(RequestsTransport, "sleep", lambda *_: None)  # between retries
    for name in ("_WAIT_COMPLETION_POLLING_INTERVAL_MIN", "_WAIT_COMPLETION_POLLING_INTERVAL_MAX"):
        monkeypatch.setattr(RunHistoryConstants, name, 0)
    monkeypatch.setenv("AZUREML_ARM_SUBSCRIPTION", SUBSCRIPTION)
    monkeypatch.setenv("AZUREML_ARM_RESOURCEGROUP", GROUP)
    monkeypatch.setenv("AZUREML_ARM_WORKSPACE_NAME", WORKSPACE)
    monkeypatch.chdir(tmp_path)
    return azure_service
