"""The log of a job, printed while it runs."""

import json
from contextlib import suppress
from threading import Thread

from azure.ai.ml.entities import Job
from azure.ai.ml.exceptions import JobException

from train_pytorch_model.azure.client_errors import message_of, one_line
from train_pytorch_model.azure.service import Service
from train_pytorch_model.machine.console import logger


class LogStream(Thread):
    """Prints the log of a job until it ends.

    A daemon thread: the client's own loop cannot be stopped.
    """

    def __init__(self, service: Service, job: Job) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._job = job
        self._problem = ""
        self.failure = ""  # why the job failed, in Azure's words
        self.start()

    def warn_of_problem(self, within_s: float) -> None:
        """Wait up to `within_s` for the end of the log; warn, once, if it cannot be shown."""
        self.join(within_s)
        if self._problem:
            logger.warning(f"The log cannot be shown here any more: {self._problem}")
            self._problem = ""

    def run(self) -> None:
        """Print the log, and remember how it ended."""
        try:
            self._service.client.jobs.stream(str(self._job.name))
        except JobException as error:
            text = str(error.message)
            with suppress(ValueError, KeyError, TypeError):  # JSON, after some words
                text = json.loads(text[text.index("{") :])["error"]["message"]
            self.failure = one_line(text).rstrip(".")
        except Exception as error:  # whatever it is, the job continues
            self._problem = message_of(error)
