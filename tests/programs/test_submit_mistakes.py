"""What `submit` refuses, and how it reports what Azure refuses."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.painting import paint_folders
from tests.programs.azure_service import (
    GROUP,
    SECRET,
    SUBSCRIPTION,
    WORKSPACE,
    AzureService,
    Call,
)
from tests.programs.program import assert_refused
from tests.programs.submitting import DATA, MODEL, ON_A_WORKSTATION, submit
from train_pytorch_model.errors import ServiceError

pytestmark = ON_A_WORKSTATION


# ── Mistakes ─────────────────────────────────────────────────────────────────────────────────────


def test_all_mistakes_are_reported_at_once_without_a_request(service: AzureService) -> None:
    options = ("--instance-count", "0", "--environment", "AzureML-pytorch:1", "--compute", "local")
    assert_refused(
        submit(*DATA, *options),
        2,
        "ParameterError: Give either --untrained-model, ",
        '\nParameter "Node count" value should be greater than 0: --instance-count is 0.\n',
        "\n--environment AzureML-pytorch:1: the program needs Python 3.11, and Azure's curated ",
        "--compute 'local' is not a cluster name",
    )
    assert_refused(
        submit(*MODEL),
        2,
        "ParameterError: --training-dataset and --validation-dataset are required.",
    )
    assert_refused(
        submit(*DATA, *MODEL, "--epochs", "0"), 2, 'ParameterError: Parameter "Epochs" value '
    )
    assert service.calls == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--wait-limit", "-1"), "The wait limit should not be negative: --wait-limit is -1."),
        (
            ("--wait-limit", "0", "--download", "model"),
            "--wait-limit 0 only submits: there is nothing to --download yet.",
        ),
    ],
)
def test_invalid_wait_limits_are_refused(
    options: tuple[str, ...], sentence: str, service: AzureService
) -> None:
    assert_refused(submit(*DATA, *MODEL, *options), 2, f"ParameterError: {sentence}")
    assert service.calls == []


@pytest.mark.parametrize("flag", ["--download", "--dry-run"])
def test_a_non_empty_output_is_refused(flag: str, service: AzureService, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    ended = submit(*DATA, *MODEL, flag, tmp_path)
    assert_refused(
        ended, 2, f"OutputDirectoryError: {flag} {tmp_path} is not empty: it holds notes.txt."
    )
    assert service.calls == []


def test_local_data_are_checked_before_anything_is_sent(
    service: AzureService, tmp_path: Path, untrained_resnet18: Path
) -> None:
    training = paint_folders(tmp_path / "training", 2, categories=("blue", "red"))
    validation = paint_folders(tmp_path / "validation", 2)
    nothing = tmp_path / "nothing"
    both = ("--training-dataset", training, "--validation-dataset", validation)
    for model in (("--architecture", "resnet18"), ("--untrained-model", untrained_resnet18)):
        assert_refused(
            submit(*both, *model), 3, "InvalidDatasetError: Validation dataset", "'green'"
        )
    for port, more in (
        ("--training-dataset", ("--validation-dataset", "azureml:a:1")),
        ("--validation-dataset", ("--training-dataset", "azureml:a:1")),
    ):
        assert_refused(
            submit(port, nothing, *more, *MODEL), 3, "InvalidDatasetError: ", "no such directory"
        )
    ended = submit(*DATA, "--untrained-model", nothing)
    assert_refused(ended, 3, 'InvalidModelDirectoryError: ModelDirectory "Untrained model ')
    assert service.calls == []


def test_a_category_without_images_is_a_warning(tmp_path: Path, untrained_resnet18: Path) -> None:
    training, validation = paint_folders(tmp_path / "a", 2), paint_folders(tmp_path / "b", 2)
    shutil.rmtree(validation / "green")
    (validation / "green").mkdir()
    ended = submit(
        *("--training-dataset", training, "--validation-dataset", validation),
        *("--untrained-model", untrained_resnet18, "--dry-run", tmp_path / "job"),
    )
    assert ended.status == 0, ended.stderr
    assert "Warning: " in ended.stdout
    assert "'green'" in ended.stdout


def test_a_missing_workspace_is_named(service: AzureService) -> None:
    service.fault = lambda _: (404, {"error": {"code": "ResourceNotFound", "message": "no"}})
    assert_refused(
        submit(*DATA, *MODEL),
        2,
        f"ParameterError: There is no workspace {WORKSPACE} in resource group {GROUP} of"
        " subscription"
        f" {SUBSCRIPTION}, or you have no access to it.",
    )


class NoCredential:
    """Stand-in for DefaultAzureCredential when nobody is signed in."""

    def get_token(self, *scopes: str, **_: Any) -> None:  # noqa: ARG002
        from azure.core.exceptions import ClientAuthenticationError

        raise ClientAuthenticationError(
            "DefaultAzureCredential failed.\nAttempted:\n  AADSTS700082: The token has expired. And"
            " so on."
        )


def test_without_a_credential_one_message_says_how_to_sign_in(
    service: AzureService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from train_pytorch_model.azure import service as submission_service

    monkeypatch.setattr(submission_service, "DefaultAzureCredential", NoCredential)
    assert_refused(
        submit(*DATA, *MODEL),
        4,
        "ServiceError: Opening workspace workspace: no credential works here. Sign in with `az"
        " login`, or set"
        " AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET.",
        "CLIENT_SECRET. AADSTS700082: The token has expired.\n",
    )
    assert service.calls == []


def test_a_rejected_token_is_reported_in_azures_words(service: AzureService) -> None:
    service.fault = lambda _: (
        401,
        {"error": {"code": "WrongTenant", "message": "Of another tenant."}},
    )
    assert_refused(
        submit(*DATA, *MODEL),
        4,
        "ServiceError: Opening workspace workspace: no credential works here. Sign in with",
        "(WrongTenant) Of another tenant.",
    )


def test_without_a_network_one_message_says_so(service: AzureService) -> None:
    service.fault = lambda _: requests.exceptions.ConnectionError("Name or service not known")
    assert_refused(
        submit(*DATA, *MODEL),
        4,
        "ServiceError: Opening workspace workspace: Azure cannot be reached. Name or service not"
        " known\n",
    )


def test_a_refusal_by_azure_is_reported_without_signatures(service: AzureService) -> None:
    def refuse(call: Call) -> tuple[int, Any] | None:
        message = f"No quota.\nSee https://portal.azure.com/quota?{SECRET}&x=1 for more."
        is_job = call.method == "PUT" and "/jobs/" in call.path
        return (409, {"error": {"code": "Conflict", "message": message}}) if is_job else None

    service.fault = refuse
    assert_refused(
        submit(*DATA, *MODEL),
        4,
        "ServiceError: Submitting the job: Azure answers 409. (Conflict) No quota. See"
        " https://portal.azure.com/quota?… for more.\n",
    )


PAGE = b"<html><title>Sign in to the proxy</title></html>"


def _answer_instead(method: str, folder: str, answer: Any, call: Call) -> Any:
    is_it = (call.method, call.path.rpartition("/")[0]) == (method, folder)
    return (200, answer) if is_it else None


@pytest.mark.parametrize("answer", [PAGE, {"value": 7, "properties": [], "name": 5}])
def test_an_answer_of_something_else_is_a_sentence(answer: Any, service: AzureService) -> None:
    """As of a proxy: whichever request it answers, there is no traceback."""
    submit(*DATA, *MODEL, "--wait-limit", "1")
    requests = {(call.method, call.path.rpartition("/")[0]) for call in service.calls}
    for method, folder in sorted(requests):
        service.fault = partial(_answer_instead, method, folder, answer)
        ended = submit(*DATA, *MODEL, "--wait-limit", "1")
        if ended.status:  # the client does not need every answer
            assert_refused(ended, 4, "ServiceError: ")
        assert "Traceback" not in ended.stdout + ended.stderr


def test_a_job_that_the_client_refuses_is_reported_in_one_sentence(tmp_path: Path) -> None:
    from train_pytorch_model.azure.service import load_valid_job

    submit(*DATA, "--architecture", "resnet18", "--dry-run", tmp_path / "job")
    job = tmp_path / "job" / "job.yaml"
    job.write_text(job.read_text().replace("      untrained_model:", "      another_model:"))
    with pytest.raises(ServiceError, match=r"azure-ai-ml refuses the job: .*untrained_model"):
        load_valid_job(job)
