"""The workflows run what README says, with the lowest Python that the project supports."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: path for path in (ROOT / ".github" / "workflows").glob("*.yaml")}


def steps_of(name: str) -> list[dict[str, Any]]:
    """The steps of the only job of a workflow."""
    (job,) = yaml.safe_load(WORKFLOWS[name].read_text())["jobs"].values()
    return list(job["steps"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_uses_the_lowest_python(name: str) -> None:
    checkout, python, *_ = steps_of(name)
    assert checkout["uses"] == "actions/checkout@v4"
    assert python["uses"] == "actions/setup-python@v5"
    assert PROJECT["requires-python"] == f">={python['with']['python-version']}"


def test_the_gate_runs_on_pull_requests_and_on_main() -> None:
    # YAML 1.1 reads the key `on` as true.
    assert yaml.safe_load(WORKFLOWS["test"].read_text())[True] == {
        "pull_request": None,
        "push": {"branches": ["main"]},
    }
    *_, gate = steps_of("test")
    assert gate["run"] == ".ci/run"
    assert (ROOT / gate["run"]).stat().st_mode & 0o111


def test_the_installation_is_cached_until_the_requirements_change() -> None:
    _, python, _ = steps_of("test")
    assert python["with"]["cache"] == "pip"
    assert python["with"]["cache-dependency-path"] == "pyproject.toml"
