"""What is wrong with a submission: a function for each rule, which yields problems."""

import re
from collections.abc import Iterator

from train_pytorch_model.azure.references import is_uri, names_version, parse_assignments
from train_pytorch_model.azure.submission import SERVERLESS, Submission
from train_pytorch_model.config.wording import out_of_range, parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.reading import MalformedFileError, read_yaml
from train_pytorch_model.image_classifier.architectures import (
    is_known,
    unknown_architecture_message,
)

# The newest one with PyTorch, as in Microsoft's repository azureml-assets.
NEWEST_CURATED = "acpt-pytorch-2.8-cuda12.6"
CURATED_PYTHON = "3.10"
CURATED_SEEN = "May 2026"
NEEDED_PYTHON = "3.11"
_CURATED = re.compile(r"azureml-|//registries/azureml/", re.IGNORECASE)
_CLUSTER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,254}", re.ASCII)


def check_submission(submission: Submission) -> None:
    """Raise `ParameterError` for what is wrong, all of it at once."""
    if not (submission.training_dataset and submission.validation_dataset):
        raise ParameterError(
            f"{parameter('training_dataset')} and {parameter('validation_dataset')} are required."
        )
    submission.data()
    parse_assignments(submission.environment_variables, "environment_variables")
    parse_assignments(submission.tags, "tags")
    problems = [
        *_problems_of_model(submission),
        *_problems_of_names(submission),
        *_problems_of_time_limit(submission),
        *_problems_of_compute(submission),
        *_problems_of_counts(submission),
        *_problems_of_new_cluster(submission),
        *problems_of_environment(submission),
    ]
    if problems:
        raise ParameterError("\n".join(problems))


def _problems_of_model(submission: Submission) -> Iterator[str]:
    architecture = submission.architecture
    if (submission.untrained_model is None) == (architecture is None):
        yield (
            f"Give either {parameter('untrained_model')}, to train that, or"
            f" {parameter('architecture')}, to start from a new model of that architecture."
        )
    if architecture is not None and not is_known(architecture):
        yield f"{parameter('architecture')} {unknown_architecture_message(architecture)}"
    if submission.pretrained and architecture is None:
        yield (
            f"{parameter('pretrained')} requires {parameter('architecture')}: a given model has its"
            " own weights."
        )


def _problems_of_names(submission: Submission) -> Iterator[str]:
    names = {"experiment_name": submission.experiment_name, "register": submission.register}
    for option, name in names.items():
        if name is not None:
            yield from _problems_of_name(name, option)


def check_model_name(name: str, option: str) -> None:
    """Raise `ParameterError` for a name that a registered model cannot have."""
    for problem in _problems_of_name(name, option):
        raise ParameterError(problem)


def _problems_of_name(name: str, option: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield (
            f"{parameter(option)} {name!r} is not a valid name: expected a letter or digit, then"
            " letters, digits, _, - and ., up to 255 characters in all."
        )


def _problems_of_time_limit(submission: Submission) -> Iterator[str]:
    minutes = submission.time_limit
    if minutes is not None and minutes < 1:
        yield (
            f"The time limit should be at least a minute: {parameter('time_limit')} is {minutes}."
        )


def _problems_of_compute(submission: Submission) -> Iterator[str]:
    compute = submission.compute
    if not _CLUSTER.fullmatch(compute) or compute.lower() == "local":
        yield (
            f"{parameter('compute')} {compute!r} is not a cluster name: expected a letter, then"
            f" letters, digits and hyphens, and not local; or {SERVERLESS}."
        )


def _problems_of_counts(submission: Submission) -> Iterator[str]:
    titles = {
        "instance_count": "Node count",
        "process_count_per_instance": "Process count per node",
        "max_nodes": "Maximum number of nodes",
    }
    for name, title in titles.items():
        count = getattr(submission, name)
        if count is not None and count < 1:
            yield out_of_range(title, "greater than 0", parameter(name), count)


def _problems_of_new_cluster(submission: Submission) -> Iterator[str]:
    count = submission.instance_count
    if submission.max_nodes is not None and submission.is_serverless:
        yield (f"{parameter('max_nodes')} is for a new cluster, and {SERVERLESS} compute has none.")
    elif 0 < submission.new_max_nodes < count:
        yield (
            f"Node count should be at most the cluster's maximum: {parameter('instance_count')} is"
            f" {count}, {parameter('max_nodes')} {submission.max_nodes}."
        )


def problems_of_environment(submission: Submission) -> Iterator[str]:
    """Yield what is wrong with the options that name an environment."""
    yield from _problems_of_named_environment(submission)
    yield from _problems_of_image(submission)
    yield from _problems_of_conda_file(submission)


def _problems_of_named_environment(submission: Submission) -> Iterator[str]:
    if submission.environment is None:
        return
    name = submission.environment.removeprefix("azureml:")
    environment = f"{parameter('environment')} {name}"
    image = parameter("image")
    conda_file = parameter("conda_file")
    if _CURATED.match(name):
        yield (
            f"{environment}: the program needs Python {NEEDED_PYTHON}, and Azure's curated"
            f" environments have {CURATED_PYTHON}, as {NEWEST_CURATED} of {CURATED_SEEN}. Leave it"
            f" out to use the project's own, or give an image with {image} and the packages with"
            f" {conda_file}."
        )
    elif name.startswith("//"):
        if not is_uri(f"azureml:{name}"):
            yield (
                f"{environment}: expected"
                " azureml://registries/REGISTRY/environments/NAME/versions/VERSION."
            )
    elif not names_version(name):
        yield f"{environment} names no version: expected NAME:VERSION or NAME@latest."
    if submission.image or submission.conda_file:
        yield (
            f"{parameter('environment')} names a complete environment: {image} and {conda_file}"
            " cannot be combined with it."
        )


def _problems_of_image(submission: Submission) -> Iterator[str]:
    image = submission.image
    if image is not None and (not image or any(letter.isspace() for letter in image)):
        yield f"{parameter('image')} {image!r} is not an image name."


def _problems_of_conda_file(submission: Submission) -> Iterator[str]:
    path = submission.conda_file
    if path is None:
        return
    try:
        if not isinstance(read_yaml(path).get("dependencies"), list):
            yield f"{parameter('conda_file')} {path} has no list of dependencies."
    except MalformedFileError as error:
        yield f"{parameter('conda_file')} {path}: {error}"


def problems_of_processes(submission: Submission, vm_size: str, gpus: int) -> Iterator[str]:
    """Yield a problem if processes would share a GPU, which makes NCCL fail, or a CPU node."""
    count = submission.process_count_per_instance
    if count > max(gpus, 1):
        yield (
            "Process count per node should be at most the GPUs of a node:"
            f" {parameter('process_count_per_instance')} is {count}, and {vm_size} has {gpus}."
        )
