"""Where a job runs: the address of the workspace, and a cluster in it, which may not fit the job.

The address comes from flags, else environment variables, else the portal's config.json. A config.json named
with --config takes precedence over the variables, which may name another workspace.

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
from train_pytorch_model.submission.request import Submission
from train_pytorch_model.words.errors import ParameterError
from train_pytorch_model.words.settings import flag

CONFIG = "config.json"
# Azure ML sets these in every job; they are read here too.
VARIABLES: Mapping[str, str] = {
    "subscription_id": "AZUREML_ARM_SUBSCRIPTION",
    "resource_group": "AZUREML_ARM_RESOURCEGROUP",
    "workspace_name": "AZUREML_ARM_WORKSPACE_NAME",
}


class Workspace(msgspec.Struct, frozen=True):
    """The address of a workspace, as in a config.json, which may lack some of it."""

    subscription_id: str = ""
    resource_group: str = ""
    workspace_name: str = ""

    @classmethod
    def find(
        cls, flags: Mapping[str, str | None], config: Path | None, environment: Mapping[str, str], start: Path
    ) -> Self:
        """Each of the names, from its first source; `config` replaces a search. Raises `ParameterError`."""
        names = {name: value for name, key in VARIABLES.items() if (value := environment.get(key))}
        if config is not None:
            names |= _read(config, f"--config {config}")
        names |= {name: value for name, value in flags.items() if value}
        if config is None and len(names) < len(VARIABLES):
            folders = (place for each in (start, *start.parents) for place in (each / ".azureml", each))
            files = (_read(path, str(path)) for each in folders if (path := each / CONFIG).is_file())
            # Many programs have a file of this name; one without any of the three entries belongs to another.
            names = next(filter(None, files), {}) | names
        if missing := [f"\n  {flag(name)} or {VARIABLES[name]}" for name in VARIABLES if name not in names]:
            raise ParameterError(
                f"The workspace is not fully specified. Missing are:{''.join(missing)}"
                f"\nOr download the workspace's {CONFIG} from the portal into this directory."
            )
        return cls(**names)

    def flags(self) -> str:
        """Return the workspace options of an `az ml` command, whose default subscription may be another."""
        # The name of a resource group may have brackets.
        subscription, group, name = map(shlex.quote, msgspec.structs.astuple(self))
        return f"--subscription {subscription} --resource-group {group} --workspace-name {name}"


@dataclass(frozen=True)
class Cluster:
    """A compute target that exists."""

    name: str
    kind: str
    """Azure's type of compute target, in lower case: amlcompute is a cluster."""
    vm_size: str | None = None
    max_nodes: int | None = None
    is_low_priority: bool = False

    def problems(self, wanted: Submission, gpus: int | None) -> Iterator[str]:
        """Yield why this cluster cannot provide the nodes. `gpus` is the number per node; None if unknown."""
        count = wanted.instance_count
        if self.kind != "amlcompute" and count > 1:
            yield (
                f"Several nodes need an AmlCompute cluster: {self.name} is of type {self.kind}, and"
                f" --instance-count is {count}."
            )
        if self.max_nodes is not None and count > self.max_nodes:
            yield (
                f"Node count should be at most the cluster's maximum: --instance-count is {count}, and"
                f" {self.name} has at most {self.max_nodes} nodes. Raise it with"
                f" `az ml compute update --name {self.name} --max-instances {count}`."
            )
        exists = f"{self.name} exists, and its nodes are"
        other = "does not fit. Leave it out, or name another cluster."
        if wanted.vm_size and self.vm_size and wanted.vm_size.lower() != self.vm_size.lower():
            yield f"{exists} {self.vm_size}: --vm-size {wanted.vm_size} {other}"
        if wanted.low_priority and not self.is_low_priority:
            yield f"{exists} not of low priority: --low-priority {other}"
        if gpus is not None and self.vm_size:
            yield from wanted.too_many_processes(self.vm_size, gpus)


def _read(path: Path, given: str) -> dict[str, str]:
    """Return the entries of a config.json; an error says what is `given`."""
    try:
        names = msgspec.structs.asdict(read_json(path, Workspace))
    except MalformedFileError as error:
        raise ParameterError(
            f"{given}: {error} It should hold subscription_id, resource_group and workspace_name."
        ) from error
    return {name: value for name, value in names.items() if value}
