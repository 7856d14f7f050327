"""A folder with a complete submission: the input of `az ml job create --file job.yaml` and all it uploads.

    job.yaml          the command job, or the pipeline
    component.yaml    Train PyTorch Model
    src/              the source of this program, which includes the other components
    environment/      the project's own environment, under a version that follows its content

The project's own component files build that environment, so that they can be registered as they are, in any
workspace. The copies here name it, or the environment that is given instead, which may need no building.
Local data are not copied: job.yaml refers to them by absolute paths.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import train_pytorch_model
from train_pytorch_model.formats.reading import read_yaml
from train_pytorch_model.submission.request import Environment, Submission
from train_pytorch_model.words.errors import UnfinishedOutputError

JOB = "job.yaml"
COMPONENT = "component.yaml"
SOURCE = "src"
ENVIRONMENT = "environment"
ENVIRONMENT_FILE = f"{ENVIRONMENT}/environment.yaml"
TRAINED_MODEL = "trained_model"
PROGRAM = Path(train_pytorch_model.__file__).parent
COMPONENTS = f"{SOURCE}/{PROGRAM.name}/components"
INIT_MODEL = f"{COMPONENTS}/init_model.yaml"
SCHEMAS = "https://azuremlschemas.azureedge.net/latest"
DIGITS = 8  # of a version's digest
IDENTITIES = {"user": "user_identity", "managed": "managed"}
_BASE_IMAGE = re.compile(r"^FROM (\S+)$", re.MULTILINE)


def write_job_folder(submission: Submission, folder: Path) -> None:
    """Fill an empty folder. Raises `UnfinishedOutputError`."""
    try:
        _fill(submission, folder)
    except OSError as error:
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error  # the first file's
        raise UnfinishedOutputError(f"The job cannot be written to {folder}: {reason}.") from error


def component_files(folder: Path) -> list[Path]:
    """Return the component files in a job folder: Train PyTorch Model, then the others by name."""
    neighbours = sorted((folder / COMPONENTS).glob("*.yaml"))
    return [folder / COMPONENT, *(path for path in neighbours if "Component.schema.json" in path.read_text())]


def components_version(folder: Path) -> str:
    """Return the version of a job folder's components: the program's, and a digest of their content."""
    return _version(folder, SOURCE, ENVIRONMENT, COMPONENT)


def copy_project(folder: Path, environment: Environment) -> None:
    """Copy the program, its environment and its components, which name `environment`. Raises `OSError`."""
    shutil.copytree(PROGRAM, folder / SOURCE / PROGRAM.name, ignore=_not_ours)
    shutil.copytree(_beside(ENVIRONMENT), folder / ENVIRONMENT)
    shutil.copyfile(_beside(COMPONENT), folder / COMPONENT)
    _change(folder / ENVIRONMENT_FILE, version=_version(folder, ENVIRONMENT))
    for path in component_files(folder):
        _change(path, environment=environment_yaml(environment, folder))


def environment_yaml(environment: Environment, folder: Path) -> dict[str, Any] | str:
    """Return the `environment` of a job or a component in a job folder."""
    if environment == Environment():
        own = read_yaml(folder / ENVIRONMENT_FILE)
        return f"azureml:{own['name']}:{own['version']}"
    if environment.name:
        return "azureml:" + environment.name.removeprefix("azureml:")
    image = environment.image or _base_image(folder / ENVIRONMENT / "Dockerfile")
    conda = {"conda_file": read_yaml(environment.conda_file)} if environment.conda_file else {}
    return {"image": image, **conda}


def _fill(submission: Submission, folder: Path) -> None:
    copy_project(folder, submission.environment)
    component = read_yaml(folder / COMPONENT)
    make = _pipeline if submission.is_pipeline else _command_job
    _write(folder / JOB, make(submission, component))


def _change(path: Path, **entries: Any) -> None:
    """Change entries that a YAML file has; others are left out."""
    document = read_yaml(path)
    _write(path, document | {key: value for key, value in entries.items() if key in document})


def _write(path: Path, document: Mapping[str, Any]) -> None:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    path.write_text(text, encoding="utf-8")


def _version(folder: Path, *names: str) -> str:
    """Return the program's version and a digest of files and folders in a job folder."""
    sha256 = hashlib.sha256()
    for root in (folder / name for name in names):
        for path in sorted(path for path in (root, *root.rglob("*")) if path.is_file()):
            sha256.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{train_pytorch_model.__version__}-{sha256.hexdigest()[:DIGITS]}"


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full, without YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _command_job(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    assert submission.untrained_model is not None
    return {
        "$schema": f"{SCHEMAS}/commandJob.schema.json",
        "type": "command",
        **_titles(submission, component),
        **_context(submission),
        "inputs": {
            "untrained_model": {
                "type": "custom_model",  # unlike the component's port, it takes a registered model too
                "path": submission.untrained_model.path,
            },
            **_datasets(submission),
            **submission.parameters.as_params(),
        },
        "outputs": _outputs(submission),
        **({} if submission.nodes.is_serverless else {"compute": f"azureml:{submission.nodes.cluster}"}),
        **_running(submission, component),
        "code": f"./{SOURCE}",
        "environment": component["environment"],
        "command": component["command"],
    }


def _pipeline(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": f"{SCHEMAS}/pipelineJob.schema.json",
        "type": "pipeline",
        **_titles(submission, component),
        "settings": {"default_compute": f"azureml:{submission.nodes.cluster}"},
        "inputs": _datasets(submission),
        "outputs": _outputs(submission),
        "jobs": {
            "init_model": {
                "type": "command",
                "component": f"./{INIT_MODEL}",
                **_context(submission),
                "inputs": {
                    "architecture": submission.architecture,
                    "pretrained": submission.pretrained,
                },
            },
            "train": {
                "type": "command",
                "component": f"./{COMPONENT}",
                **_context(submission),
                **_running(submission, component),
                "inputs": {
                    "untrained_model": "${{parent.jobs.init_model.outputs.untrained_model}}",
                    **{name: f"${{{{parent.inputs.{name}}}}}" for name in _datasets(submission)},
                    **submission.parameters.as_params(),
                },
                "outputs": {TRAINED_MODEL: f"${{{{parent.outputs.{TRAINED_MODEL}}}}}"},
            },
        },
    }


def _titles(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    return {
        "display_name": submission.display_name or component["display_name"],
        "description": component["description"],
        "experiment_name": submission.experiment_name,
        **({"tags": dict(submission.tags)} if submission.tags else {}),
    }


def _context(submission: Submission) -> dict[str, Any]:
    """What a job, or each step of a pipeline, runs with, whatever it does."""
    variables, identity = dict(submission.environment_variables), submission.identity
    return {
        **({"environment_variables": variables} if variables else {}),
        **({"identity": {"type": IDENTITIES[identity]}} if identity else {}),
    }


def _datasets(submission: Submission) -> dict[str, Any]:
    references = {
        "training_dataset": submission.training_dataset,
        "validation_dataset": submission.validation_dataset,
    }
    return {
        name: {"type": "uri_folder", "path": reference.path, "mode": submission.data_mode}
        for name, reference in references.items()
    }


def _outputs(submission: Submission) -> dict[str, Any]:
    name = {"name": submission.register} if submission.register else {}
    return {TRAINED_MODEL: {"type": "mlflow_model", **name}}


def _running(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    nodes, minutes = submission.nodes, submission.time_limit_min
    return {
        "resources": {
            **component["resources"],
            "instance_count": nodes.instance_count,
            **({"instance_type": nodes.new_vm_size} if nodes.is_serverless else {}),
        },
        "distribution": {**component["distribution"], "process_count_per_instance": nodes.process_count},
        **({"queue_settings": {"job_tier": "Spot"}} if nodes.is_serverless and nodes.low_priority else {}),
        **({} if minutes is None else {"limits": {"timeout": 60 * minutes}}),
    }


def _beside(name: str) -> Path:
    """Return the path of a project file: beside `src` in a checkout, within the package when installed."""
    installed = PROGRAM / name
    return installed if installed.exists() else PROGRAM.parents[1] / name


def _not_ours(directory: str, names: list[str]) -> set[str]:
    """Return the names not to copy: caches, hidden files, and installed files that are copied separately."""
    beside = {COMPONENT, ENVIRONMENT} if Path(directory) == PROGRAM else set()
    return {name for name in names if name in beside or name == "__pycache__" or name.startswith(".")}


def _base_image(dockerfile: Path) -> str:
    match = _BASE_IMAGE.search(dockerfile.read_text())
    assert match is not None
    return match[1]
