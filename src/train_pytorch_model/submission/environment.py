"""The environment of a job: the project's own, another one of the workspace, or a Docker image."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from train_pytorch_model.formats.reading import MalformedFileError, read_yaml

RESERVED_PREFIX = "AzureML"
_NAMED = re.compile(r"[A-Za-z0-9][\w.-]*(:[\w.-]+|@[\w.-]+)")


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
                    "--environment names a complete environment: --image and --conda-file cannot be combined"
                    " with it."
                )
        if self.image is not None and (not self.image or any(letter.isspace() for letter in self.image)):
            yield f"--image {self.image!r} is not an image name."
        if self.conda_file is not None:
            yield from _problems_of_conda_file(self.conda_file)

    def _problems_of_name(self, name: str) -> Iterator[str]:
        if name.lower().startswith(RESERVED_PREFIX.lower()):
            yield (
                f"--environment {name}: names that begin with {RESERVED_PREFIX} are reserved for Azure's"
                " curated environments, which lack packages that training needs. Leave it out to use the"
                " project's own environment."
            )
        elif not name.startswith("//") and not _NAMED.fullmatch(name):
            yield f"--environment {name} names no version: expected NAME:VERSION or NAME@latest."


def _problems_of_conda_file(path: Path) -> Iterator[str]:
    try:
        document = read_yaml(path)
    except MalformedFileError as error:
        yield f"--conda-file {path}: {error}"
        return
    if not isinstance(document.get("dependencies"), list):
        yield f"--conda-file {path} has no list of dependencies."
