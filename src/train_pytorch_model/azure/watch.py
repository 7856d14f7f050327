"""Watch a job: its phases and its log, until it is complete."""

import time
from datetime import timedelta

from train_pytorch_model.azure.log_stream import LogStream
from train_pytorch_model.azure.service import Job, Service
from train_pytorch_model.config.wording import counted
from train_pytorch_model.errors import JobFailedError, ServiceError
from train_pytorch_model.machine.console import logger

POLL_S = 10.0
LAST_LINES_S = 120.0  # to wait for the end of the log, which lags by at most a minute
# For which Azure may be unreachable while a job is watched, as from a laptop on the move.
OUTAGE_S = 1800.0

NOT_STARTED = "NotStarted"
WAITING = {
    NOT_STARTED: "Azure ML is accepting the job",
    "Queued": "waiting for nodes of the cluster; starting one takes about 5 minutes",
    "Preparing": "building the environment's image, which takes 10 to 20 minutes, but only the"
    " first time",
    "Provisioning": "starting nodes",
    "Starting": "the nodes are pulling the image and mounting the data",
}
ACTIVE = {
    "Running": "",
    "Finalizing": "outputs and logs are being uploaded",
    "CancelRequested": "the job is being cancelled",
}
REASONS = WAITING | ACTIVE


def follow(service: Service, job: Job, limit_min: int | None) -> None:
    """Report the phases of a job and show its log, until it is complete.

    Tolerates minutes without a network. Raises `JobFailedError`, and `ServiceError` if the job can
    no longer be watched, or is not complete within the limit.
    """
    started_at = time.monotonic()
    phases = _Phases(service, job, started_at)
    log: LogStream | None = None
    while True:
        now = time.monotonic()
        phases.update(now)
        if log is None and phases.status not in WAITING:
            log = LogStream(service, job)
        if log is not None:
            has_ended = is_over(phases.status)
            log.warn_of_problem(within_s=LAST_LINES_S if has_ended else 0.0)
            if has_ended:
                break
        if limit_min is not None and now - started_at >= 60 * limit_min:
            minutes = counted(limit_min, "minute", "minutes")
            raise ServiceError(f"Job {job.name} was not complete after {minutes}. It continues.")
        time.sleep(POLL_S)
    require_completed(job, phases.status, log.failure)


def is_over(status: str) -> bool:
    """Return whether a job in this phase has ended, in any way."""
    return status not in REASONS


def require_completed(job: Job, status: str, failure: str = "") -> None:
    """Raise `JobFailedError` for a job that has ended otherwise, `ServiceError` before its end."""
    if not is_over(status):
        raise ServiceError(
            f"Job {job.name} is {status}, and its model comes with its end. `job.wait()` waits for"
            " that."
        )
    if status != "Completed":
        why = f": {failure}" if failure else ""
        raise JobFailedError(f"Job {job.name} is {status}{why}. Its logs: {job.studio_url}")


class _Phases:
    """The phases of a job and of its steps, as they were last reported."""

    def __init__(self, service: Service, job: Job, started_at: float) -> None:
        self._service = service
        self._job = job
        self._started_at = started_at
        self._reached_at = started_at
        self._is_reachable = True
        self._reported: dict[str, str] = {}

    @property
    def status(self) -> str:
        """The phase of the job itself."""
        return self._reported.get("", NOT_STARTED)

    def update(self, now: float) -> None:
        """Report the phases that have changed. Raises `ServiceError` after a long outage."""
        for step, phase in self._read(now).items():
            if self._reported.get(step) != phase:
                elapsed = timedelta(seconds=int(now - self._started_at))
                reason = REASONS.get(phase)
                explanation = f": {reason}" if reason else ""
                logger.info(f"[{elapsed}] {step}{phase}{explanation}")
            self._reported[step] = phase

    def _read(self, now: float) -> dict[str, str]:
        """Return the phases; none while Azure cannot be reached."""
        try:
            phases = self._service.phases(self._job)
        except ServiceError as error:
            if not error.is_transient or now - self._reached_at >= OUTAGE_S:
                raise
            if self._is_reachable:
                minutes = f"{OUTAGE_S / 60:.0f} minutes"
                logger.warning(f"{str(error).rstrip('.')}. Trying again for {minutes}.")
            self._is_reachable = False
            return {}
        self._reached_at = now
        self._is_reachable = True
        return phases
