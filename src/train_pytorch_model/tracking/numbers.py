"""A few numbers for MLflow, outside a training."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from train_pytorch_model.config.wording import reason_of
from train_pytorch_model.machine.console import logger
from train_pytorch_model.tracking.description import RunDescription

# Where an environment names neither, there is nobody who looks at a store.
STORES = ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI")


def log_numbers(name: str, numbers: Mapping[str, float]) -> None:
    """Log metrics to the run of an Azure ML job, or to a new run if a store is named.

    A failure is a warning.
    """
    if not any(os.environ.get(variable) for variable in STORES):
        return
    try:
        from train_pytorch_model.tracking.mlflow_run import MlflowRun  # which takes a second

        now_ms = time.time_ns() // 1_000_000
        with TemporaryDirectory() as scratch:
            run = MlflowRun(RunDescription(name, {}), Path(scratch, "run_id"), now_ms)
            run.log_metrics(numbers, now_ms)
            run.end("FINISHED")
    except Exception as error:  # whatever a server or a plug-in raises
        logger.warning(f"MLflow does not have these numbers: {reason_of(error)}.")
