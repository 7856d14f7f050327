"""What a job is asked for: its data, its environment and all that the user requested, checked."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from train_pytorch_model.formats.reading import MalformedFileError, read_yaml
from train_pytorch_model.image_classifier.architectures import is_known, unknown_architecture_message
from train_pytorch_model.submission.cluster import Nodes
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import ParameterError
from train_pytorch_model.words.wording import parameter

EXPERIMENT = "train_pytorch_model"
SCHEMES = ("azureml", "https", "wasbs", "abfss", "adl")
FORMS = "a folder, azureml:NAME:VERSION, azureml:NAME@LABEL, azureml://…, https://…, wasbs://… or abfss://…"
CURATED = re.compile(r"azureml-|//registries/azureml/", re.IGNORECASE)
DataMode = Literal["ro_mount", "download"]
Identity = Literal["user", "managed"]
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,254}", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][\w.-]*(:[\w.-]+|@[\w.-]+)")  # of an asset
_WORKSPACE = r"subscriptions/[^/]+/resource[gG]roups/[^/]+/(providers/[^/]+/)?workspaces/[^/]+"
_URI = re.compile(
    "azureml://("
    rf"({_WORKSPACE}/)?datastores/[^/]+/paths/.+"
    r"|jobs/[^/]+/outputs/[^/]+/paths/.+"
    rf"|(registries/[^/]+|locations/[^/]+/workspaces/[^/]+|{_WORKSPACE})"
    r"/(data|models|environments)/[^/]+/(versions|labels)/[^/]+/?)"
)


@dataclass(frozen=True)
class Reference:
    """A reference to a job's data."""

    path: str
    """As written in a job's YAML."""
    local: Path | None = None
    """The local folder; None for data in the cloud."""

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """Parse the value of the parameter `name`. Raises `ParameterError`."""
        given = f"{parameter(name)} {text}"
        scheme, separator, _ = text.partition("://")
        if separator:
            if scheme not in SCHEMES:
                raise ParameterError(f"{given}: {scheme}:// is not supported by Azure ML. Give {FORMS}.")
            if "?" in text:
                # Anyone who can read the job could read the signature.
                raise ParameterError(
                    f"{given.partition('?')[0]}?…: a signature does not belong in a job. Register the"
                    " container as a datastore of the workspace, and give azureml://datastores/NAME/paths/PATH."
                )
            if scheme == "azureml" and not _URI.fullmatch(text):
                raise ParameterError(
                    f"{given} is no address in Azure ML. Expected azureml://datastores/NAME/paths/PATH or"
                    " azureml://registries/NAME/data/NAME/versions/VERSION."
                )
            return cls(text)
        if text.startswith("azureml:"):
            if not _VERSION.fullmatch(text.removeprefix("azureml:")):
                raise ParameterError(
                    f"{given} names no version: expected azureml:NAME:VERSION or azureml:NAME@latest."
                )
            return cls(text)
        local = Path(text).absolute()
        return cls(str(local), local)


@dataclass(frozen=True)
class Environment:
    """Either `name`, or `image` and `conda_file` or one of them, or nothing for the project's own."""

    name: str | None = None
    """`NAME:VERSION` or `NAME@LABEL` in the workspace, or `azureml://…` in a registry."""
    image: str | None = None
    conda_file: Path | None = None

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with these options."""
        if self.name is not None:
            yield from self._problems_of_name(self.name.removeprefix("azureml:"))
            if self.image or self.conda_file:
                yield (
                    f"{parameter('environment')} names a complete environment: {parameter('image')} and"
                    f" {parameter('conda_file')} cannot be combined with it."
                )
        if self.image is not None and (not self.image or any(letter.isspace() for letter in self.image)):
            yield f"{parameter('image')} {self.image!r} is not an image name."
        if self.conda_file is not None:
            yield from _problems_of_conda_file(self.conda_file)

    def _problems_of_name(self, name: str) -> Iterator[str]:
        given = f"{parameter('environment')} {name}"
        if CURATED.match(name):
            yield (
                f"{given}: Azure's curated environments lack packages that training needs. Leave it out to"
                f" use the project's own, or give the image with {parameter('image')} and the packages with"
                f" {parameter('conda_file')}."
            )
        elif name.startswith("//"):
            if not _URI.fullmatch(f"azureml:{name}"):
                yield f"{given}: expected azureml://registries/REGISTRY/environments/NAME/versions/VERSION."
        elif not _VERSION.fullmatch(name):
            yield f"{given} names no version: expected NAME:VERSION or NAME@latest."


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One training run: a single job on a given model, or a pipeline that initializes the model first."""

    untrained_model: Reference | None = None
    architecture: str | None = None
    """Architecture of the model that the pipeline initializes; None if a model is given."""
    pretrained: bool = False
    training_dataset: Reference
    validation_dataset: Reference
    parameters: TrainConfig = field(default_factory=TrainConfig)
    nodes: Nodes
    environment: Environment = field(default_factory=Environment)
    data_mode: DataMode = "ro_mount"
    """Whether the nodes mount the data sets or download them before the training."""
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    identity: Identity | None = None
    """On whose behalf the job reads data: the user who submits it, or the cluster's managed identity."""
    tags: Mapping[str, str] = field(default_factory=dict)
    display_name: str | None = None
    experiment_name: str = EXPERIMENT
    register: str | None = None
    """Name under which Azure ML registers the trained model as soon as the job has written it."""
    time_limit_min: int | None = None
    """Minutes after which Azure ML ends the training; None for no limit."""

    def __post_init__(self) -> None:
        """Raise `ParameterError` with everything that is wrong."""
        problems = [*self._problems(), *self.nodes.problems(), *self.environment.problems()]
        if problems:
            raise ParameterError("\n".join(problems))

    @property
    def is_pipeline(self) -> bool:
        return self.untrained_model is None

    def _problems(self) -> Iterator[str]:
        untrained, architecture = parameter("untrained_model"), parameter("architecture")
        if (self.untrained_model is None) == (self.architecture is None):
            yield (
                f"Give either {untrained}, to train that, or {architecture}, to start from a new model of"
                " that architecture."
            )
        if self.architecture is not None and not is_known(self.architecture):
            yield f"{architecture} {unknown_architecture_message(self.architecture)}"
        if self.pretrained and self.architecture is None:
            yield f"{parameter('pretrained')} requires {architecture}: a given model has its own weights."
        for parameter_name, name in (("experiment_name", self.experiment_name), ("register", self.register)):
            if name is not None and not _NAME.fullmatch(name):
                yield (
                    f"{parameter(parameter_name)} {name!r} is not a valid name: expected a letter or digit,"
                    " then letters, digits, _, - and ., up to 255 characters in all."
                )
        if self.time_limit_min is not None and self.time_limit_min < 1:
            yield (
                f"The time limit should be at least a minute: {parameter('time_limit')} is"
                f" {self.time_limit_min}."
            )


def parse_assignments(texts: Sequence[str], name: str) -> dict[str, str]:
    """Parse the values `NAME=VALUE` of the parameter `name`. Raises `ParameterError`."""
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise ParameterError(f"{parameter(name)} {text}: expected NAME=VALUE.")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def _problems_of_conda_file(path: Path) -> Iterator[str]:
    try:
        document = read_yaml(path)
    except MalformedFileError as error:
        yield f"{parameter('conda_file')} {path}: {error}"
        return
    if not isinstance(document.get("dependencies"), list):
        yield f"{parameter('conda_file')} {path} has no list of dependencies."
