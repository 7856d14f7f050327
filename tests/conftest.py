"""What all tests share: one thread per test process, a tracking store of their own, small models."""

import os
import signal
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # two cores, and tests run side by side
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background so, and all programs under test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_tracking_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes an mlflow.db into the working directory, and none inherits a launcher's variables."""
    store = tmp_path_factory.getbasetemp() / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def untrained_resnet18(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained ResNet-18 directory, written by init-model once for all tests; read only."""
    from train_pytorch_model.commands.init_model import InitModel

    output = tmp_path_factory.mktemp("untrained") / "resnet18"
    InitModel(output=output).run()
    return output
