"""The workspace that a submission goes to, and where its address is found."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import msgspec

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.reading import MalformedFileError, read_json

CONFIG = "config.json"
# Azure ML sets these in every job; they are read here too.
VARIABLES: Mapping[str, str] = {
    "subscription_id": "AZUREML_ARM_SUBSCRIPTION",
    "resource_group": "AZUREML_ARM_RESOURCEGROUP",
    "workspace_name": "AZUREML_ARM_WORKSPACE_NAME",
}


class Workspace(msgspec.Struct, frozen=True):
    """The address of a workspace, as in the portal's config.json, which may lack some of it.

        {"subscription_id": "…", "resource_group": "…", "workspace_name": "…"}

    Without --config, it is searched for in the working directory and its parents, and in the folder
    `.azureml` of each. With --config it takes precedence over variables, which may name another
    workspace.
    """

    subscription_id: str = ""
    resource_group: str = ""
    workspace_name: str = ""

    @classmethod
    def find(
        cls,
        options: Mapping[str, str | None],
        config: Path | None,
        env: Mapping[str, str],
        start: Path,
    ) -> Self:
        """Return the workspace, each of its names from its first source: options come first.

        A `config` takes the place of a search from the directory `start`. Raises `ParameterError`.
        """
        names = _set_values({name: env.get(variable) for name, variable in VARIABLES.items()})
        if config is not None:
            names |= _read(config, f"{parameter('config')} {config}")
        names |= _set_values(options)
        if config is None and len(names) < len(VARIABLES):
            names = _search(start) | names
        missing = [name for name in VARIABLES if name not in names]
        if missing:
            sources = [f"\n  {parameter(name)} or {VARIABLES[name]}" for name in missing]
            raise ParameterError(
                f"The workspace is not fully specified. Missing are:{''.join(sources)}"
                f"\nOr download the workspace's {CONFIG} from the portal into this directory."
            )
        return cls(**names)

    def flags(self) -> str:
        """Return the workspace options of an `az ml` command, quoted for a shell.

        All three are named, as the default subscription may be another.
        """
        # The name of a resource group may have brackets.
        subscription, group, name = map(shlex.quote, msgspec.structs.astuple(self))
        return f"--subscription {subscription} --resource-group {group} --workspace-name {name}"


def _search(start: Path) -> dict[str, str]:
    """Return the entries of the nearest config.json of a workspace; none without one."""
    for path in _config_files(start):
        names = _read(path, str(path))
        # Many programs have a file of this name; one without any of the three entries belongs to
        # another.
        if names:
            return names
    return {}


def _config_files(start: Path) -> Iterator[Path]:
    for folder in (start, *start.parents):
        for path in (folder / ".azureml" / CONFIG, folder / CONFIG):
            if path.is_file():
                yield path


def _read(path: Path, title: str) -> dict[str, str]:
    """Return the entries of a config.json; an error names it by the title."""
    try:
        names = msgspec.structs.asdict(read_json(path, Workspace))
    except MalformedFileError as error:
        raise ParameterError(
            f"{title}: {error} It should hold subscription_id, resource_group and workspace_name."
        ) from error
    return _set_values(names)


def _set_values(values: Mapping[str, str | None]) -> dict[str, str]:
    """Return the entries that are neither None nor empty."""
    return {name: value for name, value in values.items() if value}
