"""The job folder, which is written before anything is sent and without the Azure packages."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.disks import files_of_at_most
from tests.submissions import submission

from train_pytorch_model.azure import job_folder
from train_pytorch_model.azure.job_folder import component_files, environment_yaml, write_job_folder
from train_pytorch_model.azure.rules import problems_of_environment
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.errors import UnfinishedOutputError
from train_pytorch_model.formats.outputs import owning_directory

ROOT = Path(__file__).parents[3]


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
    nodes = {"instance_count": 2, "process_count_per_instance": 4}
    job = written(tmp_path / "job", parameters=parameters, **nodes)
    assert job["command"] == component["command"]
    assert list(job["inputs"]) == list(component["inputs"])
    assert {name: job["inputs"][name] for name in parameters.as_params()} == parameters.as_params()
    assert job["resources"] == {"instance_count": 2, "shm_size": "8g"}
    assert job["distribution"] == {"type": "pytorch", "process_count_per_instance": 4}
    assert "limits" not in job
    assert job["outputs"] == {"trained_model": {"type": "mlflow_model"}}


def test_the_pipeline_passes_every_parameter_and_the_limit_to_training(tmp_path: Path) -> None:
    job = written(
        tmp_path / "job",
        untrained_model=None,
        architecture="resnet50",
        register="flowers",
        time_limit=2,
        instance_count=2,
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


def environments_in(folder: Path) -> list[Any]:
    """The environments that the components of a job folder name."""
    specs = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in component_files(folder)]
    return [spec["environment"] for spec in specs if "environment" in spec]


def test_jobs_and_components_name_the_projects_environment_in_the_version_of_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = written(tmp_path / "job")
    own = yaml.safe_load((tmp_path / "job" / "environment" / "environment.yaml").read_text())
    assert own["name"] == "train-pytorch-model"
    assert own["version"].startswith("0.1.0-")
    assert job["environment"] == f"azureml:train-pytorch-model:{own['version']}"
    assert set(environments_in(tmp_path / "job")) == {job["environment"]}
    assert written(tmp_path / "again")["environment"] == job["environment"]
    # A package that has been installed elsewhere, with other pins.
    root = tmp_path / "changed" / "src" / "train_pytorch_model"
    for name in ("src", "environment", "component.yaml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / "changed" / name)
    with (tmp_path / "changed" / "environment" / "constraints.txt").open("a") as file:
        file.write("torch==9.9\n")
    monkeypatch.setattr(job_folder, "PACKAGE", root)
    assert written(tmp_path / "other")["environment"] != job["environment"]


def test_another_environment_is_that_of_every_step_and_component(tmp_path: Path) -> None:
    conda_file = tmp_path / "mine.yaml"
    conda_file.write_text("dependencies: [python=3.12]\n")
    environment = {"image": "registry/image:1", "conda_file": conda_file}
    expected = {"image": "registry/image:1", "conda_file": {"dependencies": ["python=3.12"]}}
    assert written(tmp_path / "job", **environment)["environment"] == expected
    assert all(found == expected for found in environments_in(tmp_path / "job"))
    steps = written(
        tmp_path / "pipeline", untrained_model=None, architecture="resnet50", **environment
    )
    assert all("environment" not in step for step in steps["jobs"].values())  # the component's own
    assert all(found == expected for found in environments_in(tmp_path / "pipeline"))


@pytest.mark.parametrize("name", ["mine:1", "azureml:mine:1"])
def test_an_environment_of_the_workspace_is_referenced(name: str) -> None:
    assert environment_yaml(Submission(environment=name), ROOT) == "azureml:mine:1"


def test_an_environment_of_a_registry_is_referenced() -> None:
    registered = "azureml://registries/ours/environments/mine/versions/1"
    submission = Submission(environment=registered)
    assert list(problems_of_environment(submission)) == []
    assert environment_yaml(submission, ROOT) == registered


def test_a_conda_file_alone_uses_the_projects_base_image(tmp_path: Path) -> None:
    conda_file = tmp_path / "mine.yaml"
    conda_file.write_text("dependencies: []\n")
    found = environment_yaml(Submission(conda_file=conda_file), ROOT)
    assert isinstance(found, dict)
    assert found["conda_file"] == {"dependencies": []}
    assert f"FROM {found['image']}\n" in (ROOT / "environment" / "Dockerfile").read_text()


def test_all_components_are_found(tmp_path: Path) -> None:
    written(tmp_path / "job")
    names = [path.name for path in component_files(tmp_path / "job")]
    assert names[0] == "component.yaml"
    assert {"score.yaml", "init_model.yaml", "evaluate.yaml", "photographs_to_model.yaml"} <= set(
        names
    )
    assert not {"pipeline.yaml", "sweep.yaml"} & set(names)
