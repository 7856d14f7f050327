"""What MLflow logs is this package's business only where it starts MLflow."""

import logging
import subprocess
import sys

import pytest

from train_pytorch_model.tracking.mlflow_logs import hush_mlflow

IMPORTS = """
import logging
import mlflow
loggers = [logging.getLogger(name) for name in (None, "mlflow", "alembic")]
before = [(logger.level, list(logger.handlers)) for logger in loggers]
import train_pytorch_model.tracking.mlflow_run
import train_pytorch_model.tracking.save_model
import train_pytorch_model.tracking.tracker
assert [(logger.level, list(logger.handlers)) for logger in loggers] == before
"""


def test_importing_changes_nothing_of_a_hosts_logging() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


@pytest.mark.parametrize("name", ["mlflow", "alembic"])
def test_only_warnings_are_logged_then(name: str) -> None:
    logger = logging.getLogger(name)
    before = logger.level
    try:
        hush_mlflow()
        assert not logger.isEnabledFor(logging.INFO)
        assert logger.isEnabledFor(logging.WARNING)
    finally:
        logger.setLevel(before)
