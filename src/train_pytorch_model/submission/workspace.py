"""The address of the workspace: from flags, else environment variables, else the portal's config.json.

A config.json named with --config takes precedence over the variables, which may name another workspace.

    config.json    {"subscription_id": "…", "resource_group": "…", "workspace_name": "…"}

Without --config, it is searched for in the working directory and its parents, and in the folder `.azureml`
of each.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from train_pytorch_model.formats.reading import MalformedFileError, read_json
from train_pytorch_model.words.errors import ParameterError
from train_pytorch_model.words.wording import parameter

CONFIG = "config.json"
# Azure ML sets these in every job; they are read here too.
VARIABLES: Mapping[str, str] = {
    "subscription_id": "AZUREML_ARM_SUBSCRIPTION",
    "resource_group": "AZUREML_ARM_RESOURCEGROUP",
    "workspace_name": "AZUREML_ARM_WORKSPACE_NAME",
}


@dataclass(frozen=True)
class Workspace:
    """The address of a workspace."""

    subscription_id: str
    resource_group: str
    name: str

    @classmethod
    def find(
        cls, flags: Mapping[str, str | None], config: Path | None, environment: Mapping[str, str], start: Path
    ) -> Self:
        """Return the workspace, each of its three names taken from the first source that has it.

        `config` replaces the search from `start` upwards. Raises `ParameterError`, naming what is missing.
        """
        names = {
            name: environment[variable] for name, variable in VARIABLES.items() if environment.get(variable)
        }
        if config is not None:
            names |= _read(config, is_asked_for=True)
        names |= {name: value for name, value in flags.items() if value}
        if config is None and len(names) < len(VARIABLES):
            files = (_read(path, is_asked_for=False) for path in _places(start) if path.is_file())
            # Many programs have a file of this name; one without any of the three entries belongs to another.
            names = next(filter(None, files), {}) | names
        missing = [name for name in VARIABLES if name not in names]
        if missing:
            raise ParameterError(
                "The workspace is not fully specified. Missing are:"
                + "".join(f"\n  {parameter(name)} or {VARIABLES[name]}" for name in missing)
                + f"\nOr download the workspace's {CONFIG} from the portal into this directory."
            )
        return cls(names["subscription_id"], names["resource_group"], names["workspace_name"])

    def flags(self) -> str:
        """Return the workspace options of an `az ml` command, whose default subscription may be another."""
        return shlex.join(
            (
                *("--subscription", self.subscription_id),
                *("--resource-group", self.resource_group),  # its name may contain brackets
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
        which = f"{parameter('config')} {path}" if is_asked_for else str(path)
        raise ParameterError(
            f"{which}: {error} It should hold subscription_id, resource_group and workspace_name."
        ) from error
    return {name: value for name, value in names.items() if value}
