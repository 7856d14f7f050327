"""A folder with a complete submission: the input of `az ml job create --file job.yaml` and all it
uploads.

    job.yaml          the command job, or the pipeline
    component.yaml    Train PyTorch Model
    src/              the source of this program, which includes the other components
    environment/      the project's own environment, under a version that follows its content

The project's own component files build that environment, so that they can be registered as they
are, in any workspace. The copies here name it, or the environment that is given instead, which may
need no building. Local data are not copied: job.yaml refers to them by absolute paths.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

import train_pytorch_model
from train_pytorch_model.azure.request import Submission, parse_assignments
from train_pytorch_model.errors import UnfinishedOutputError
from train_pytorch_model.formats.reading import read_yaml

JOB = "job.yaml"
COMPONENT = "component.yaml"
SOURCE = "src"
ENVIRONMENT = "environment"
ENVIRONMENT_FILE = f"{ENVIRONMENT}/environment.yaml"
TRAINED_MODEL = "trained_model"
PACKAGE = Path(train_pytorch_model.__file__).parent
COMPONENTS = f"{SOURCE}/{PACKAGE.name}/components"
INIT_MODEL = f"{COMPONENTS}/init_model.yaml"
SCHEMAS = "https://azuremlschemas.azureedge.net/latest"
DIGITS = 8  # of a version's digest
IDENTITIES = {"user": "user_identity", "managed": "managed"}


def write_job_folder(submission: Submission, folder: Path) -> None:
    """Fill an empty folder. Raises `UnfinishedOutputError`."""
    try:
        copy_project(submission, folder)
        _write(folder / JOB, _job(submission, read_yaml(folder / COMPONENT)))
    except OSError as error:
        reason = (
            error.args[0][0][2] if isinstance(error, shutil.Error) else error
        )  # the first file's
        raise UnfinishedOutputError(f"The job cannot be written to {folder}: {reason}.") from error


def component_files(folder: Path) -> list[Path]:
    """Return the component files in a job folder: Train PyTorch Model, then the others by name."""
    neighbours = sorted((folder / COMPONENTS).glob("*.yaml"))
    return [
        folder / COMPONENT,
        *(path for path in neighbours if "Component.schema.json" in path.read_text()),
    ]


def components_version(folder: Path) -> str:
    """Return the version of a job folder's components: the program's, and a digest of their
    content.
    """
    return _version(folder, SOURCE, ENVIRONMENT, COMPONENT)


def copy_project(submission: Submission, folder: Path) -> None:
    """Copy the program, its environment and its components, which name the job's.

    Raises `OSError`.
    """
    beside = {  # `src` in a checkout, within the package when installed
        name: PACKAGE / name if (PACKAGE / name).exists() else PACKAGE.parents[1] / name
        for name in (ENVIRONMENT, COMPONENT)
    }

    def not_ours(directory: str, names: list[str]) -> set[str]:
        separate = beside if Path(directory) == PACKAGE else ()
        return {
            name
            for name in names
            if name in separate or name == "__pycache__" or name.startswith(".")
        }

    shutil.copytree(PACKAGE, folder / SOURCE / PACKAGE.name, ignore=not_ours)
    shutil.copytree(beside[ENVIRONMENT], folder / ENVIRONMENT)
    shutil.copyfile(beside[COMPONENT], folder / COMPONENT)
    own = read_yaml(folder / ENVIRONMENT_FILE)
    _write(folder / ENVIRONMENT_FILE, own | {"version": _version(folder, ENVIRONMENT)})
    for path in component_files(folder):
        component = read_yaml(path)
        named = (
            {"environment": environment_yaml(submission, folder)}
            if "environment" in component
            else {}
        )
        _write(path, component | named)


def environment_yaml(submission: Submission, folder: Path) -> dict[str, Any] | str:
    """Return the `environment` of a job or a component in a job folder."""
    if submission.has_own_environment:
        own = read_yaml(folder / ENVIRONMENT_FILE)
        return f"azureml:{own['name']}:{own['version']}"
    if submission.environment:
        return "azureml:" + submission.environment.removeprefix("azureml:")
    dockerfile = (folder / ENVIRONMENT / "Dockerfile").read_text()
    (base,) = re.findall(r"^FROM (\S+)$", dockerfile, re.MULTILINE)
    conda_file = submission.conda_file
    return _given(image=submission.image or base, conda_file=conda_file and read_yaml(conda_file))


def _write(path: Path, document: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
    path.write_text(text, encoding="utf-8")


def _version(folder: Path, *names: str) -> str:
    """Return the program's version and a digest of files and folders in a job folder."""
    sha256 = hashlib.sha256()
    for root in (folder / name for name in names):
        for path in sorted(path for path in (root, *root.rglob("*")) if path.is_file()):
            sha256.update(
                path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
            )
    return f"{train_pytorch_model.__version__}-{sha256.hexdigest()[:DIGITS]}"


def _given(**entries: Any) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if value}


def _job(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    """The command job on a given model, or the pipeline that makes one first."""
    is_single, parameters = bool(submission.untrained_model), submission.parameters.as_params()
    datasets = {
        name: {"type": "uri_folder", "path": str(place), "mode": submission.data_mode}
        for name, place in submission.data().items()
        if name != "untrained_model"
    }
    context = _given(  # what a job, or each step of a pipeline, runs with, whatever it does
        environment_variables=parse_assignments(
            submission.environment_variables, "environment_variables"
        ),
        identity=submission.identity and {"type": IDENTITIES[submission.identity]},
    )
    head = {
        "$schema": f"{SCHEMAS}/{'command' if is_single else 'pipeline'}Job.schema.json",
        "type": "command" if is_single else "pipeline",
        **_given(
            display_name=submission.display_name or component["display_name"],
            description=component["description"],
            experiment_name=submission.experiment_name,
            tags=parse_assignments(submission.tags, "tags"),
        ),
    }
    outputs = {TRAINED_MODEL: _given(type="mlflow_model", name=submission.register)}
    compute, running = f"azureml:{submission.compute}", _running(submission, component)
    if is_single:
        # Unlike the component's port, a custom_model takes a registered model too.
        model = {"type": "custom_model", "path": str(submission.data()["untrained_model"])}
        return {
            **(head | context),
            "inputs": {"untrained_model": model, **datasets, **parameters},
            "outputs": outputs,
            **({} if submission.is_serverless else {"compute": compute}),
            **running,
            "code": f"./{SOURCE}",
            "environment": component["environment"],
            "command": component["command"],
        }
    make = {"architecture": submission.architecture, "pretrained": submission.pretrained}
    taken = {
        "untrained_model": "${{parent.jobs.init_model.outputs.untrained_model}}",
        **{name: f"${{{{parent.inputs.{name}}}}}" for name in datasets},
    }
    made = {TRAINED_MODEL: f"${{{{parent.outputs.{TRAINED_MODEL}}}}}"}
    repeated = deepcopy(context)  # the file would only refer to the same one
    first = {"type": "command", "component": f"./{INIT_MODEL}", **repeated, "inputs": make}
    second = {"type": "command", "component": f"./{COMPONENT}", **context, **running}
    second |= {"inputs": taken | parameters, "outputs": made}
    return {
        **head,
        "settings": {"default_compute": compute},
        "inputs": datasets,
        "outputs": outputs,
        "jobs": {"init_model": first, "train": second},
    }


def _running(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    count, minutes, is_serverless = (
        submission.instance_count,
        submission.time_limit,
        submission.is_serverless,
    )
    size = _given(instance_type=is_serverless and submission.new_vm_size)
    processes = {"process_count_per_instance": submission.process_count_per_instance}
    return _given(
        resources={**component["resources"], "instance_count": count, **size},
        distribution={**component["distribution"], **processes},
        queue_settings=is_serverless and submission.low_priority and {"job_tier": "Spot"},
        limits=minutes and {"timeout": 60 * minutes},
    )
