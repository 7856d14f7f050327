"""Checks before anything is submitted, which do not need the Azure packages."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tests.submissions import submission

from train_pytorch_model.azure import rules
from train_pytorch_model.azure.rules import check_submission
from train_pytorch_model.errors import ParameterError


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            {"instance_count": 0},
            'Parameter "Node count" value should be greater than 0: --instance-count is 0.',
        ),
        (
            {"process_count_per_instance": -1},
            'Parameter "Process count per node" value should be greater than 0:'
            " --process-count-per-instance is -1.",
        ),
        (
            {"max_nodes": 0},
            'Parameter "Maximum number of nodes" value should be greater than 0: --max-nodes is 0.',
        ),
        (
            {"instance_count": 3, "max_nodes": 2},
            "Node count should be at most the cluster's maximum: --instance-count is 3, --max-nodes"
            " 2.",
        ),
        (
            {"compute": "-gpu"},
            "--compute '-gpu' is not a cluster name: expected a letter, then letters, digits and"
            " hyphens,"
            " and not local; or serverless.",
        ),
        ({"compute": "Local"}, "--compute 'Local' is not a cluster name: "),
        (
            {"compute": "serverless", "max_nodes": 2},
            "--max-nodes is for a new cluster, and serverless compute has none.",
        ),
        ({"compute": "azureml:gpu"}, "--compute 'azureml:gpu' is not a cluster name: "),
    ],
)
def test_invalid_nodes_are_refused(nodes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check_submission(submission(**nodes))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"untrained_model": None},
            "Give either --untrained-model, to train that, or --architecture, to",
        ),
        (
            {"architecture": "resnet50"},
            "Give either --untrained-model, to train that, or --architecture, to",
        ),
        (
            {"untrained_model": None, "architecture": "resnet51"},
            "--architecture resnet51 is not known. Did you mean resnet",
        ),
        (
            {"pretrained": True},
            "--pretrained requires --architecture: a given model has its own weights.",
        ),
        (
            {"experiment_name": "my flowers"},
            "--experiment-name 'my flowers' is not a valid name: expected a letter or digit, then"
            " letters,"
            " digits, _, - and ., up to 255 characters in all.",
        ),
        ({"register": "-"}, "--register '-' is not a valid name: "),
        ({"time_limit": 0}, "The time limit should be at least a minute: --time-limit is 0."),
        (
            {"environment": "AzureML-acpt-pytorch:3"},
            "--environment AzureML-acpt-pytorch:3: the program needs Python 3.11, and Azure's"
            " curated environments have 3.10, as acpt-pytorch-2.8-cuda12.6 of May 2026. Leave it"
            " out to use the project's own, or give an image with --image and the packages with"
            " --conda-file.",
        ),
        (
            {"environment": "azureml:azureml-x:3"},
            "--environment azureml-x:3: the program needs Python 3.11",
        ),
        (
            {"environment": "azureml://registries/azureml/environments/acpt/labels/latest"},
            "--environment //registries/azureml/environments/acpt/labels/latest: the program needs",
        ),
        (
            {"environment": "azureml://registries/ours/mine"},
            "--environment //registries/ours/mine: expected azureml://registries/REGISTRY/environments/",
        ),
        (
            {"environment": "mine"},
            "--environment mine names no version: expected NAME:VERSION or NAME@latest.",
        ),
        (
            {"environment": "mine:1", "image": "image"},
            "--environment names a complete environment: --image and --conda-file cannot be"
            " combined with",
        ),
        ({"image": ""}, "--image '' is not an image name."),
        ({"image": "my image"}, "--image 'my image' is not an image name."),
    ],
)
def test_a_submission_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check_submission(submission(**changes))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "conda.yaml is missing."),
        ("- torch", "conda.yaml should hold a mapping of keys to values but holds a list."),
        ("name: mine", " has no list of dependencies."),
    ],
)
def test_an_invalid_conda_file_is_refused(
    content: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "conda.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ParameterError) as caught:
        check_submission(submission(conda_file=path))
    assert str(caught.value).startswith(f"--conda-file {path}")
    assert str(caught.value).endswith(message)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ParameterError) as caught:
        check_submission(submission(pretrained=True, instance_count=0, environment="mine"))
    assert str(caught.value).count("\n") == 2


def test_curated_environments_are_refused_for_a_reason_that_holds() -> None:
    """Once the program runs with their Python, the refusal has to go."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={rules.NEEDED_PYTHON}"
    assert Version(rules.CURATED_PYTHON) not in SpecifierSet(project["requires-python"])
