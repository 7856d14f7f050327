"""Which workspace: from flags, else from the environment, else from the config.json of the portal.

    config.json    {"subscription_id": "…", "resource_group": "…", "workspace_name": "…"}

It is looked for in the working directory and its parents, in each also in a folder `.azureml`.
"""

from collections.abc import Iterable, Iterator, Mapping
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
        found |= {name: value for name, value in flags.items() if value}
        if len(found) < len(VARIABLES):
            found = _read(config or _first_file(_places(start)), is_asked_for=config is not None) | found
        missing = [name for name in VARIABLES if not found.get(name)]
        if missing:
            raise ParameterError(
                "Which workspace? Unknown are:"
                + "".join(f"\n  --{name.replace('_', '-')} or {VARIABLES[name]}" for name in missing)
                + f"\nOr download {CONFIG} of the workspace from the portal into this directory."
            )
        return cls(found["subscription_id"], found["resource_group"], found["workspace_name"])

    def flags(self) -> str:
        """The end of a command line of `az ml`."""
        return f"--resource-group {self.resource_group} --workspace-name {self.name}"


class _Config(msgspec.Struct):
    subscription_id: str = ""
    resource_group: str = ""
    workspace_name: str = ""


def _places(start: Path) -> Iterator[Path]:
    for directory in (start, *start.parents):
        yield directory / ".azureml" / CONFIG
        yield directory / CONFIG


def _first_file(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path | None, is_asked_for: bool) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return msgspec.structs.asdict(read_json(path, _Config))
    except MalformedFileError as error:
        which = f"--config {path}" if is_asked_for else str(path)
        raise ParameterError(
            f"{which}: {error} It should hold subscription_id, resource_group and workspace_name."
        ) from error
