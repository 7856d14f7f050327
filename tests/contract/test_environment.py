"""The Azure ML environment and pyproject.toml agree."""

import re
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.readme import README

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "environment" / "Dockerfile").read_text()
# Not needed on a training node: `submit` and the quickstart run on a workstation.
NOT_FOR_JOBS = {"azure-ai-ml", "azure-identity", "scikit-learn"}


def pinned(file: str = "requirements.txt") -> dict[str, str]:
    """Package → version pinned in the environment."""
    lines = (ROOT / "environment" / file).read_text().splitlines()
    requirements = [
        Requirement(line.partition(" #")[0]) for line in lines if line and line[0] != "#"
    ]
    for requirement in requirements:
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
    return {r.name: next(iter(r.specifier)).version for r in requirements}


def test_every_requirement_of_the_project_is_pinned_within_its_range() -> None:
    versions = pinned()
    for requirement in map(Requirement, PROJECT["dependencies"]):
        if requirement.name in NOT_FOR_JOBS:
            assert requirement.name not in versions
        else:
            assert requirement.specifier.contains(versions[requirement.name]), requirement


@pytest.mark.parametrize("extra", ["onnx", "timm"])
def test_the_environment_has_the_extras(extra: str) -> None:
    versions = pinned()
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        assert requirement.specifier.contains(versions[requirement.name]), requirement


def test_every_package_of_the_image_is_pinned_in_agreement_with_the_requirements() -> None:
    everything = pinned("constraints.txt")
    assert pinned().items() <= everything.items()
    assert {"sqlalchemy", "protobuf", "fastapi", "nvidia-cudnn-cu12"} <= set(everything)


def test_the_environment_adds_only_what_a_job_needs() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["onnx"], *extras["timm"]]
    names = {Requirement(text).name for text in wanted}
    assert set(pinned()) - names == {"azureml-mlflow"}


def test_the_readme_states_the_versions_used_in_jobs() -> None:
    versions = pinned()
    told = ", ".join(
        f"{name} {versions[name]}" for name in ("torch", "torchvision", "mlflow", "azureml-mlflow")
    )
    text = " ".join(README.split())
    assert f"`environment/requirements.txt`: {told}." in text
    python = re.search(r"python=(\d+\.\d+)", DOCKERFILE)
    assert python is not None
    assert f"The image of jobs has Python {python[1]}." in text


def test_torch_and_torchvision_are_of_the_same_release() -> None:
    versions = pinned()
    torch_minor, torchvision_minor = (
        int(versions[name].split(".")[1]) for name in ("torch", "torchvision")
    )
    assert torchvision_minor == torch_minor + 15


def test_the_image_has_a_python_that_the_project_supports() -> None:
    version = re.search(r"python=(\d+\.\d+)", DOCKERFILE)
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]


def test_the_base_image_is_azures_and_pinned() -> None:
    base = re.search(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    assert re.fullmatch(r"mcr\.microsoft\.com/azureml/[\w.-]+:\d{8}\.v\d+", base[1])
    assert "COPY requirements.txt constraints.txt" in DOCKERFILE
    assert "--requirement requirements.txt --constraint constraints.txt" in DOCKERFILE


def test_building_the_image_does_not_prompt_for_terms() -> None:
    create = re.search(r"conda create (?:.*\\\n)*.*", DOCKERFILE)
    assert create is not None
    assert "--yes" in create[0]
    assert "--override-channels --channel conda-forge" in create[0]


def test_the_wheel_includes_the_files_that_submit_sends() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    assert wheel["force-include"] == {
        name: f"train_pytorch_model/{name}" for name in ("component.yaml", "environment")
    }
    for name in wheel["force-include"]:
        assert (ROOT / name).exists()


def test_nothing_but_torch_brings_cuda() -> None:
    """A PyTorch for CPUs, installed first, is kept, and stays as small as it is."""
    found = {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]}
    waiting = [*found - {"torch"}]
    while waiting:
        with suppress(PackageNotFoundError):  # of a platform or extra that is not installed here
            needed = map(Requirement, requires(waiting.pop()) or ())
            names = {
                canonicalize_name(r.name) for r in needed if not r.marker or r.marker.evaluate()
            }
            waiting += names - found - {"torch"}
            found |= names
    assert not [name for name in found if re.search("nvidia|cuda|triton", name)]
    assert len(found) > len(PROJECT["dependencies"])
    torch = next(r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "torch")
    assert torch.specifier.contains("2.14.1+cpu")
