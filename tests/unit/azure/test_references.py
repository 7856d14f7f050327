"""Data and models that a submission names: in the cloud or on this machine."""

from pathlib import Path

import pytest

from train_pytorch_model.azure.references import parse_assignments, parse_data
from train_pytorch_model.errors import ParameterError


@pytest.mark.parametrize(
    "text",
    [
        "azureml:flowers:1",
        "azureml:flowers.training-2:2026-11-21",
        "azureml:flowers@latest",
        "azureml://datastores/workspaceblobstore/paths/flowers/",
        "azureml://registries/azureml/models/resnet50/versions/3",
        "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/d/paths/flowers",
        "azureml://locations/westeurope/workspaces/w-id/data/flowers/versions/1",
        "azureml://jobs/musing_lime/outputs/trained_model/paths/model",
        "https://storage.blob.core.windows.net/container/flowers/",
        "wasbs://container@storage.blob.core.windows.net/flowers",
        "abfss://files@storage.dfs.core.windows.net/flowers",
    ],
)
def test_cloud_references_are_passed_unchanged(text: str) -> None:
    assert parse_data(text, "data") == text


def test_a_local_folder_becomes_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_data("flowers/training", "data") == tmp_path / "flowers" / "training"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "azureml:flowers",
            "--data azureml:flowers names no version: expected azureml:NAME:VERSION or",
        ),
        ("azureml:flowers:", "--data azureml:flowers: names no version"),
        (
            "http://host/flowers",
            "--data http://host/flowers: http:// is not supported by Azure ML. Give a folder",
        ),
        (
            "azureml://nonsense",
            "--data azureml://nonsense is no address in Azure ML. Expected azureml://data",
        ),
        ("azureml:///x", "--data azureml:///x is no address in Azure ML."),
        (
            "azureml://datastores/d/path/flowers",
            "--data azureml://datastores/d/path/flowers is no address",
        ),
        ("azureml://datastores/d/paths/", "--data azureml://datastores/d/paths/ is no address"),
        ("s3://bucket/flowers", "--data s3://bucket/flowers: s3:// is not supported by Azure ML."),
        (
            "https://storage.blob.core.windows.net/c?sv=1&sig=secret",
            "--data https://storage.blob.core.windows.net/c?…: a signature does not belong in a"
            " job.",
        ),
    ],
)
def test_invalid_references_are_refused(text: str, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse_data(text, "data")
    assert str(caught.value).startswith(message)
    assert "secret" not in str(caught.value)


def test_assignments_are_parsed() -> None:
    assert parse_assignments(("A=1", "B=x=y", "C="), "tags") == {"A": "1", "B": "x=y", "C": ""}
    for wrong in ("A", "=1"):
        with pytest.raises(ParameterError, match=f"--tags {wrong}: expected NAME=VALUE"):
            parse_assignments((wrong,), "tags")
