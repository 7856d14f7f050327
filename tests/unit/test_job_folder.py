"""The job folder, which is written before anything is sent and without the Azure packages."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.disks import files_of_at_most
from tests.submissions import submission

from train_pytorch_model.formats.outputs import owning_directory
from train_pytorch_model.submission.cluster import Nodes
from train_pytorch_model.submission.job_folder import component_files, environment_yaml, write_job_folder
from train_pytorch_model.submission.request import Environment
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import UnfinishedOutputError

ROOT = Path(__file__).parents[2]


def written(folder: Path, **changes: Any) -> dict[str, Any]:
    """The job.yaml of a submission, after writing its folder."""
    folder.mkdir()
    write_job_folder(submission(**changes), folder)
    document: dict[str, Any] = yaml.safe_load((folder / "job.yaml").read_text(encoding="utf-8"))
    return document


def test_the_folder_is_the_project_without_caches(tmp_path: Path) -> None:
    written(tmp_path / "job")
    names = {path.name for path in (tmp_path / "job").iterdir()}
    assert names == {"job.yaml", "component.yaml", "src", "environment"}
    assert (tmp_path / "job" / "component.yaml").read_bytes() == (ROOT / "component.yaml").read_bytes()
    package = tmp_path / "job" / "src" / "train_pytorch_model"
    assert (package / "run.py").is_file()
    assert not list(package.rglob("__pycache__"))
    assert not (package / "environment").exists()


def test_a_full_disk_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with (
        files_of_at_most(1000),
        pytest.raises(UnfinishedOutputError, match=r"File too large"),
        owning_directory(folder, "dry_run"),
    ):
        write_job_folder(submission(), folder)
    assert list(tmp_path.iterdir()) == []


def test_the_job_has_the_components_command_and_every_parameter(tmp_path: Path) -> None:
    component = yaml.safe_load((ROOT / "component.yaml").read_text())
    parameters = TrainConfig(epochs=3, learning_rate=1e-5, random_seed=-7)
    nodes = Nodes(cluster="gpu", instance_count=2, process_count=4)
    job = written(tmp_path / "job", parameters=parameters, nodes=nodes)
    assert job["command"] == component["command"]
    assert list(job["inputs"]) == list(component["inputs"])
    assert {name: job["inputs"][name] for name in parameters.as_params()} == parameters.as_params()
    assert job["resources"] == {"instance_count": 2, "shm_size": "8g"}
    assert job["distribution"] == {"type": "pytorch", "process_count_per_instance": 4}
    assert job["environment"] == {"build": {"path": "./environment"}}
    assert "limits" not in job
    assert job["outputs"] == {"trained_model": {"type": "mlflow_model"}}


def test_the_pipeline_passes_every_parameter_and_the_limit_to_training(tmp_path: Path) -> None:
    job = written(
        tmp_path / "job",
        untrained_model=None,
        architecture="resnet50",
        register="flowers",
        time_limit_min=2,
        nodes=Nodes(cluster="gpu", instance_count=2),
    )
    assert job["outputs"]["trained_model"]["name"] == "flowers"
    train = job["jobs"]["train"]
    assert TrainConfig().as_params().items() <= train["inputs"].items()
    assert train["resources"]["instance_count"] == 2
    assert train["limits"] == {"timeout": 120}
    assert "resources" not in job["jobs"]["init_model"]
    for step in job["jobs"].values():
        assert "environment" not in step  # the component's own
        assert (tmp_path / "job" / step["component"]).is_file()


def test_a_custom_environment_applies_to_every_step_and_its_conda_file_is_copied(tmp_path: Path) -> None:
    conda_file = tmp_path / "mine.yaml"
    conda_file.write_text("dependencies: [python=3.12]\n")
    job = written(
        tmp_path / "job",
        untrained_model=None,
        architecture="resnet50",
        environment=Environment(image="registry/image:1", conda_file=conda_file),
    )
    expected = {"image": "registry/image:1", "conda_file": "./conda.yaml"}
    assert [step["environment"] for step in job["jobs"].values()] == [expected, expected]
    assert (tmp_path / "job" / "conda.yaml").read_bytes() == conda_file.read_bytes()
    assert "*id" not in (tmp_path / "job" / "job.yaml").read_text()


@pytest.mark.parametrize("name", ["mine:1", "azureml:mine:1"])
def test_an_environment_of_the_workspace_is_referenced(name: str) -> None:
    assert environment_yaml(Environment(name), ROOT) == "azureml:mine:1"


def test_an_environment_of_a_registry_is_referenced() -> None:
    registered = "azureml://registries/ours/environments/mine/versions/1"
    assert list(Environment(registered).problems()) == []
    assert environment_yaml(Environment(registered), ROOT) == registered


def test_a_conda_file_alone_uses_the_projects_base_image() -> None:
    found = environment_yaml(Environment(conda_file=Path("mine.yaml")), ROOT / "environment")
    assert isinstance(found, dict)
    assert found["conda_file"] == "./conda.yaml"
    assert f"FROM {found['image']}\n" in (ROOT / "environment" / "Dockerfile").read_text()


def test_all_components_are_found(tmp_path: Path) -> None:
    written(tmp_path / "job")
    names = [path.name for path in component_files(tmp_path / "job")]
    assert names[0] == "component.yaml"
    assert {"score.yaml", "init_model.yaml", "evaluate.yaml", "photographs_to_model.yaml"} <= set(names)
    assert not {"pipeline.yaml", "sweep.yaml"} & set(names)
