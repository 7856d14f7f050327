"""A folder with a complete job: the input of `az ml job create --file job.yaml`.

It holds all that is uploaded:

    job.yaml          the command job, or the pipeline
    component.yaml    Train PyTorch Model
    src/              the source of this program, which includes the other components
    environment/      the project's own environment, under a version that follows its content

The project's own component files build that environment, so that they can be registered as they
are, in any workspace. The copies here name it, or the environment of the submission, which may
need no building. Local data are not copied: job.yaml refers to them by absolute paths.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import train_pytorch_model
from train_pytorch_model.azure.references import parse_assignments
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.errors import UnfinishedOutputError
from train_pytorch_model.formats.reading import read_yaml

JOB = "job.yaml"
COMPONENT = "component.yaml"
SOURCE = "src"
ENVIRONMENT = "environment"
ENVIRONMENT_FILE = f"{ENVIRONMENT}/environment.yaml"
MODEL_OUTPUT = "trained_model"  # of the job, and of the pipeline
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
        component = read_yaml(folder / COMPONENT)
        if submission.untrained_model:
            job = _command_job(submission, component)
        else:
            job = _pipeline_job(submission, component)
        _write(folder / JOB, job)
    except OSError as error:
        reason: object = error
        if isinstance(error, shutil.Error):
            reason = error.args[0][0][2]  # the first file's
        raise UnfinishedOutputError(f"The job cannot be written to {folder}: {reason}.") from error


def component_files(folder: Path) -> list[Path]:
    """Return the component files in a job folder: Train PyTorch Model, then the others by name."""
    specs = sorted((folder / COMPONENTS).glob("*.yaml"))
    components = [path for path in specs if "Component.schema.json" in path.read_text()]
    return [folder / COMPONENT, *components]


def components_version(folder: Path) -> str:
    """Return the version of a job folder's components: the program's, and a digest of them."""
    return _version(folder, SOURCE, ENVIRONMENT, COMPONENT)


def copy_project(submission: Submission, folder: Path) -> None:
    """Copy the program, its environment and its components, which name the job's.

    Raises `OSError`.
    """
    shutil.copytree(PACKAGE, folder / SOURCE / PACKAGE.name, ignore=_not_source)
    shutil.copytree(_beside_source(ENVIRONMENT), folder / ENVIRONMENT)
    shutil.copyfile(_beside_source(COMPONENT), folder / COMPONENT)

    environment = read_yaml(folder / ENVIRONMENT_FILE)
    environment["version"] = _version(folder, ENVIRONMENT)
    _write(folder / ENVIRONMENT_FILE, environment)
    for path in component_files(folder):
        component = read_yaml(path)
        if "environment" in component:
            component["environment"] = environment_yaml(submission, folder)
        _write(path, component)


def _beside_source(name: str) -> Path:
    """Return what is beside `src` in a checkout, and within the package when it is installed."""
    installed = PACKAGE / name
    return installed if installed.exists() else PACKAGE.parents[1] / name


def _not_source(directory: str, names: list[str]) -> set[str]:
    """Return the names in a directory that are not copied with the source."""
    copied_separately = (ENVIRONMENT, COMPONENT) if Path(directory) == PACKAGE else ()
    return {
        name
        for name in names
        if name in copied_separately or name == "__pycache__" or name.startswith(".")
    }


def environment_yaml(submission: Submission, folder: Path) -> dict[str, Any] | str:
    """Return the `environment` of a job or a component in a job folder."""
    if submission.has_own_environment:
        environment = read_yaml(folder / ENVIRONMENT_FILE)
        return f"azureml:{environment['name']}:{environment['version']}"
    if submission.environment:
        return "azureml:" + submission.environment.removeprefix("azureml:")
    dockerfile = (folder / ENVIRONMENT / "Dockerfile").read_text()
    (base,) = re.findall(r"^FROM (\S+)$", dockerfile, re.MULTILINE)
    conda_file = submission.conda_file
    return _set_entries(
        image=submission.image or base, conda_file=conda_file and read_yaml(conda_file)
    )


def _write(path: Path, document: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
    path.write_text(text, encoding="utf-8")


def _version(folder: Path, *names: str) -> str:
    """Return the program's version and a digest of files and folders in a job folder."""
    sha256 = hashlib.sha256()
    for name in names:
        root = folder / name
        for path in sorted([root, *root.rglob("*")]):
            if path.is_file():
                sha256.update(path.relative_to(folder).as_posix().encode() + b"\0")
                sha256.update(path.read_bytes() + b"\0")
    return f"{train_pytorch_model.__version__}-{sha256.hexdigest()[:DIGITS]}"


def _set_entries(**entries: Any) -> dict[str, Any]:
    """Return the entries that are set to something."""
    return {name: value for name, value in entries.items() if value}


def _command_job(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    """Return the command job, which trains the submission's model."""
    compute = {} if submission.is_serverless else {"compute": _compute_of(submission)}
    # Unlike the component's port, a custom_model takes a registered model too.
    model = {"type": "custom_model", "path": str(submission.data()["untrained_model"])}
    return {
        **_head(submission, component, "command"),
        **_context(submission),
        "inputs": {
            "untrained_model": model,
            **_datasets(submission),
            **submission.parameters.as_params(),
        },
        "outputs": _outputs(submission),
        **compute,
        **_running(submission, component),
        "code": f"./{SOURCE}",
        "environment": component["environment"],
        "command": component["command"],
    }


def _pipeline_job(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    """Return the pipeline job, which makes a model and trains it."""
    datasets = _datasets(submission)
    init_model = {
        "type": "command",
        "component": f"./{INIT_MODEL}",
        **_context(submission),
        "inputs": {
            "architecture": submission.architecture,
            "pretrained": submission.pretrained,
        },
    }
    train = {
        "type": "command",
        "component": f"./{COMPONENT}",
        **_context(submission),
        **_running(submission, component),
        "inputs": {
            "untrained_model": "${{parent.jobs.init_model.outputs.untrained_model}}",
            **{name: f"${{{{parent.inputs.{name}}}}}" for name in datasets},
            **submission.parameters.as_params(),
        },
        "outputs": {MODEL_OUTPUT: f"${{{{parent.outputs.{MODEL_OUTPUT}}}}}"},
    }
    return {
        **_head(submission, component, "pipeline"),
        "settings": {"default_compute": _compute_of(submission)},
        "inputs": datasets,
        "outputs": _outputs(submission),
        "jobs": {"init_model": init_model, "train": train},
    }


def _head(submission: Submission, component: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "$schema": f"{SCHEMAS}/{kind}Job.schema.json",
        "type": kind,
        **_set_entries(
            display_name=submission.display_name or component["display_name"],
            description=component["description"],
            experiment_name=submission.experiment_name,
            tags=parse_assignments(submission.tags, "tags"),
        ),
    }


def _context(submission: Submission) -> dict[str, Any]:
    """Return what a job, or each step of a pipeline, runs with, whatever it does."""
    assignments = submission.environment_variables
    identity = submission.identity
    return _set_entries(
        environment_variables=parse_assignments(assignments, "environment_variables"),
        identity=identity and {"type": IDENTITIES[identity]},
    )


def _datasets(submission: Submission) -> dict[str, Any]:
    mode = submission.data_mode
    return {
        name: {"type": "uri_folder", "path": str(path), "mode": mode}
        for name, path in submission.data().items()
        if name != "untrained_model"
    }


def _outputs(submission: Submission) -> dict[str, Any]:
    return {MODEL_OUTPUT: _set_entries(type="mlflow_model", name=submission.register)}


def _compute_of(submission: Submission) -> str:
    return f"azureml:{submission.compute}"


def _running(submission: Submission, component: dict[str, Any]) -> dict[str, Any]:
    """Return on which nodes the training runs, with how many processes, and for how long."""
    is_serverless = submission.is_serverless
    vm_size = _set_entries(instance_type=is_serverless and submission.new_vm_size)
    num_processes = submission.process_count_per_instance
    minutes = submission.time_limit
    return _set_entries(
        resources={
            **component["resources"],
            "instance_count": submission.instance_count,
            **vm_size,
        },
        distribution={
            **component["distribution"],
            "process_count_per_instance": num_processes,
        },
        queue_settings=is_serverless and submission.low_priority and {"job_tier": "Spot"},
        limits=minutes and {"timeout": 60 * minutes},
    )
