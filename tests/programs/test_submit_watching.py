"""`submit` while its job runs: what is shown, and what does not end the job."""

import threading
from pathlib import Path

import pytest
import requests

from tests.programs.azure_service import (
    GROUP,
    SUBSCRIPTION,
    WORKSPACE,
    Answer,
    AzureService,
    Call,
)
from tests.programs.program import assert_refused
from tests.programs.submitting import DATA, MODEL, ON_A_WORKSTATION, submit

pytestmark = ON_A_WORKSTATION


def test_phases_and_the_log_are_shown(service: AzureService) -> None:
    service.statuses = ["Queued", "Queued", "Preparing", "Running", "Finalizing", "Completed"]
    service.log = "Epoch 1/5\nEpoch 2/5\n"
    ended = submit(*DATA, *MODEL)
    assert (ended.status, ended.stderr) == (0, "")
    assert "[0:00:10] Queued: waiting for nodes of the cluster; starting one takes " in ended.stdout
    assert ended.stdout.count("Queued") == 1
    assert (
        "] Preparing: building the environment's image, which takes 10 to 20 minutes, "
        in ended.stdout
    )
    for line in ("] Running\n", "Epoch 1/5\nEpoch 2/5\n", "] Finalizing: outputs", "] Completed\n"):
        assert line in ended.stdout


def test_a_failed_job_is_reported_in_azures_words(service: AzureService) -> None:
    service.statuses = ["Running", "Failed"]
    service.log_statuses = ["Running", "Failed"]
    service.error = "The job ended with exit code 3."
    ended = submit(*DATA, *MODEL, "--download", "model", "--register", "flowers")
    assert_refused(
        ended,
        4,
        "JobFailedError: Job ",
        " is Failed: The job ended with exit code 3. Its logs: https://ml.azure",
    )
    assert "registered" not in ended.stdout
    assert not Path("model").exists()


def test_a_cancelled_job_is_reported(service: AzureService) -> None:
    service.statuses = ["Running", "CancelRequested", "Canceled"]
    service.log_statuses = ["Canceled"]
    assert_refused(
        submit(*DATA, *MODEL), 4, "JobFailedError: Job ", " is Canceled. Its logs: https://ml.azure"
    )


def test_a_log_that_cannot_be_shown_does_not_end_the_watch(service: AzureService) -> None:
    service.fault = lambda call: (
        (403, {"error": {"message": "no"}}) if "/details" in call.path else None
    )
    ended = submit(*DATA, *MODEL)
    assert (ended.status, ended.stderr) == (0, "")
    assert "Warning: The log cannot be shown here any more: " in ended.stdout


def test_only_submitting_prints_how_to_follow_the_job(service: AzureService) -> None:
    service.statuses = ["Running"]
    ended = submit(*DATA, *MODEL, "--wait-limit", "0")
    assert (ended.status, ended.stderr) == (0, "")
    name = service.job["name"]
    assert f"Job {name} continues: https://ml.azure.com/" in ended.stdout
    where = f"--subscription {SUBSCRIPTION} --resource-group {GROUP} --workspace-name {WORKSPACE}\n"
    assert f"  az ml job stream --name {name} {where}" in ended.stdout
    assert f"  az ml job cancel --name {name} {where}" in ended.stdout
    assert f"  az ml job download --name {name} --output-name trained_model {where}" in ended.stdout


def test_a_job_continues_after_the_wait_limit(service: AzureService) -> None:
    service.statuses = ["Queued"]
    ended = submit(*DATA, *MODEL, "--wait-limit", "2")
    assert_refused(
        ended, 4, "ServiceError: Job ", " was not complete after 2 minutes. It continues."
    )
    assert "az ml job cancel" in ended.stdout


def test_a_job_continues_when_the_network_fails(service: AzureService) -> None:
    def cut(call: Call) -> Exception | None:
        is_watch = call.method == "GET" and "/jobs/" in call.path
        return requests.exceptions.ConnectionError("Network is unreachable") if is_watch else None

    service.fault = cut
    ended = submit(*DATA, *MODEL)
    assert_refused(
        ended, 4, "ServiceError: Watching job ", "Azure cannot be reached. Network is unreachable"
    )
    assert f"Job {service.job['name']} continues: https://ml.azure.com/" in ended.stdout
    assert ended.stdout.count("Network is unreachable. Trying again for 30 minutes.") == 1


@pytest.mark.parametrize("fault", [requests.exceptions.ConnectionError("cut"), (503, {})])
def test_an_outage_of_minutes_does_not_end_the_watch(
    fault: Answer | Exception, service: AzureService
) -> None:
    service.statuses = ["Queued", "Running", "Completed"]
    outages = iter([False, *[True] * 40, False, *[True] * 40])

    def cut(call: Call) -> Answer | Exception | None:
        is_watch = call.method == "GET" and "/jobs/" in call.path
        is_main = threading.current_thread() is threading.main_thread()
        return fault if is_watch and is_main and next(outages, False) else None

    service.fault = cut
    ended = submit(*DATA, *MODEL)
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.count("Trying again for 30 minutes.") == 2
    assert "] Completed\n" in ended.stdout


def test_a_job_continues_after_an_interrupt(service: AzureService) -> None:
    def interrupt(call: Call) -> None:
        if call.method == "GET" and "/jobs/" in call.path:
            raise KeyboardInterrupt

    service.fault = interrupt
    ended = submit(*DATA, *MODEL)
    assert ended.status == 130
    assert f"Job {service.job['name']} continues: https://ml.azure.com/" in ended.stdout
    assert f"az ml job cancel --name {service.job['name']} --subscription" in ended.stdout
    assert "Traceback" not in ended.stderr
