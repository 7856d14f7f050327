"""What an earlier start of an Azure ML job has left in the job's run: epochs, and the files of outputs/."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Self

from train_pytorch_model.machine.console import logger
from train_pytorch_model.tracking.tracker import ENVIRONMENT

ANSWER_S = 60.0  # for the number of epochs, before training starts: a cold node takes long to load mlflow


@dataclass(frozen=True)
class EarlierStart:
    """A job's run that has epochs already, before this process has trained one."""

    run_id: str
    num_epochs: int

    @classmethod
    def find(cls) -> Self | None:
        """Return the job's run if it has epochs; None otherwise, with a warning if MLflow does not say."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        run_id = os.environ.get("MLFLOW_RUN_ID", "")
        answers: list[int | None] = []
        # A daemon: a server that is unreachable blocks the client for minutes.
        thread = Thread(
            target=lambda: answers.append(_num_epochs(run_id)), daemon=True, name="mlflow question"
        )
        if run_id:
            thread.start()
            thread.join(ANSWER_S)
            if not answers or answers[0] is None:
                logger.warning(
                    "MLflow does not say whether an earlier start of this job has trained. If one has, its"
                    " epochs are trained again."
                )
        return cls(run_id, answers[0]) if answers and answers[0] else None

    def download(self, folder: Path, scratch: Path) -> Iterator[Path]:
        """Yield copies of `folder`, of outputs/, as each start has left it; the latest first.

        Azure uploads that of a restarted job below retry_001/, retry_002/ …
        """
        import mlflow

        client = mlflow.MlflowClient()
        try:
            names = [file.path for file in client.list_artifacts(self.run_id)]
            retries = sorted((name for name in names if re.fullmatch(r"retry_\d+", name)), reverse=True)
            for start in (*retries, ""):
                path = (Path(start) / folder).as_posix()
                if client.list_artifacts(self.run_id, path):
                    yield Path(client.download_artifacts(self.run_id, path, str(scratch)))
        except Exception:  # servers, networks and client libraries raise all kinds; then there is none
            return


def _num_epochs(run_id: str) -> int | None:
    """The number of epochs that a run has; None if that is unknown."""
    try:
        import mlflow

        from train_pytorch_model.tracking.mlflow_run import LAST_METRIC

        return len(mlflow.MlflowClient().get_metric_history(run_id, LAST_METRIC))
    except Exception as error:  # likewise
        # What a store may answer about a metric that it does not have.
        return 0 if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST" else None
