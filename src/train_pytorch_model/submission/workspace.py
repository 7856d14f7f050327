"""Which workspace: from flags, else from the environment, else from the config.json of the portal.

A config.json that is named comes before the environment, which may be that of another workspace.

    config.json    {"subscription_id": "…", "resource_group": "…", "workspace_name": "…"}

Where none is named, it is looked for in the working directory and its parents, in each also in a folder
`.azureml`.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.files import MalformedFileError, read_json

CONFIG = "config.json"
# Set in every job of Azure ML, and understood here too.
VARIABLES: Mapping[str, str] = {
    "subscription_id": "AZUREML_ARM_SUBSCRIPTION",
    "resource_group": "AZUREML_ARM_RESOURCEGROUP",
    "workspace_name": "AZUREML_ARM_WORKSPACE_NAME",
}


@dataclass(frozen=True)
class Workspace:
    """Its address."""

    subscription_id: str
    resource_group: str
    name: str

    @classmethod
    def find(
        cls, flags: Mapping[str, str | None], config: Path | None, environment: Mapping[str, str], start: Path
    ) -> Self:
        """The workspace, each of its three names from the first place that has it.

        `config` is read instead of what lies about. Raises `ParameterError`, naming what is missing.
        """
        found = {
            name: environment[variable] for name, variable in VARIABLES.items() if environment.get(variable)
        }
        if config is not None:
            found |= _read(config, is_asked_for=True)
        found |= {name: value for name, value in flags.items() if value}
        if config is None and len(found) < len(VARIABLES):
            files = (_read(path, is_asked_for=False) for path in _places(start) if path.is_file())
            # Many programs have a file of this name; one that names nothing of a workspace is another's.
            found = next(filter(None, files), {}) | found
        missing = [name for name in VARIABLES if name not in found]
        if missing:
            raise ParameterError(
                "Which workspace? Unknown are:"
                + "".join(f"\n  --{name.replace('_', '-')} or {VARIABLES[name]}" for name in missing)
                + f"\nOr download {CONFIG} of the workspace from the portal into this directory."
            )
        return cls(found["subscription_id"], found["resource_group"], found["workspace_name"])

    def flags(self) -> str:
        """The end of a command line of `az ml`, which may have another subscription as its default."""
        return shlex.join(
            (
                *("--subscription", self.subscription_id),
                *("--resource-group", self.resource_group),  # which may have brackets in its name
                *("--workspace-name", self.name),
            )
        )


class _Config(msgspec.Struct):
    subscription_id: str = ""
    resource_group: str = ""
    workspace_name: str = ""


def _places(start: Path) -> Iterator[Path]:
    for directory in (start, *start.parents):
        yield directory / ".azureml" / CONFIG
        yield directory / CONFIG


def _read(path: Path, is_asked_for: bool) -> dict[str, str]:
    try:
        names = msgspec.structs.asdict(read_json(path, _Config))
    except MalformedFileError as error:
        which = f"--config {path}" if is_asked_for else str(path)
        raise ParameterError(
            f"{which}: {error} It should hold subscription_id, resource_group and workspace_name."
        ) from error
    return {name: value for name, value in names.items() if value}
