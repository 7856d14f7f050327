"""Shared by all tests: one thread per test process, a separate tracking store, a small model."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zygote.session import Zygote, end_zygote, start_zygote
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.machine.memory import available_memory
from train_pytorch_model.machine.threads import OPENMP

ZYGOTE = pytest.StashKey[Zygote]()

os.environ["OMP_NUM_THREADS"] = "1"  # tests run in parallel on two cores
os.environ |= OPENMP  # as the program sets it before it loads torch: threads that wait do not spin
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells ignore SIGINT in background jobs, and all programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup ignores this one
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_auto_num_workers() -> int:
    """Return two workers a core, since many tests wait for processes; each needs up to 3 GB."""
    return max(1, min(usable_cores() * 2, available_memory() // (3 << 30)))


def pytest_configure(config: pytest.Config) -> None:
    """Start the zygote of the session, for all its workers: it loads nothing before it is asked."""
    if not hasattr(config, "workerinput"):
        config.stash[ZYGOTE] = start_zygote()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the zygote and its processes."""
    zygote = config.stash.get(ZYGOTE, None)
    if zygote is not None:
        end_zygote(zygote)


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """Skip fsync, of which only a power failure would tell; tests of it replace this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def _own_tracking_store(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep mlflow.db out of the working directory, and a launcher's variables out of the
    environment.
    """
    store = tmp_path_factory.getbasetemp() / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    for name in (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _flags_name_parameters() -> Iterator[None]:
    """Have messages name parameters as on the command line, also where a test calls stories."""
    with for_command_line():
        yield


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Let tests see every line, and undo what a command within the test process has set up."""
    logger = logging.getLogger("train_pytorch_model")
    logger.setLevel(logging.INFO)
    yield
    logger.handlers = []
    logger.propagate = True


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `training` and `validation`: four and three images of each category; read-only."""
    from tests.painting import paint_folders

    root = tmp_path_factory.mktemp("folders")
    paint_folders(root / "training", 4)
    paint_folders(root / "validation", 3, first=100)
    return root


@pytest.fixture(scope="session")
def untrained_resnet18(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained ResNet-18 directory, written once for all tests by init-model; read-only."""
    from train_pytorch_model.commands.init_model import InitModel

    output = tmp_path_factory.mktemp("untrained") / "resnet18"
    InitModel(output=output).run()
    return output
