"""The options that name a workspace, on the command line and in Python."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from train_pytorch_model.azure.workspace import VARIABLES, Workspace
from train_pytorch_model.config.given_values import typed_values
from train_pytorch_model.config.keyword_options import require_known
from train_pytorch_model.config.options import OptionalName, OptionalPath


@dataclass(frozen=True, kw_only=True)
class WorkspaceOptions:
    """The options that name a workspace, on the command line and in Python."""

    subscription_id: OptionalName = None
    """Subscription of the workspace. By default AZUREML_ARM_SUBSCRIPTION, else from config.json."""
    resource_group: OptionalName = None
    """Resource group of the workspace. By default AZUREML_ARM_RESOURCEGROUP, else from config.json.
    """
    workspace_name: OptionalName = None
    """Name of the workspace. By default AZUREML_ARM_WORKSPACE_NAME, else from config.json."""
    config: OptionalPath = None
    (
        "config.json of the workspace; overrides those variables and one found in or above this"
        " directory."
    )

    def workspace(self) -> Workspace:
        """Return the workspace that these options name. Raises `ParameterError`."""
        options = {name: getattr(self, name) for name in VARIABLES}
        return Workspace.find(options, self.config, os.environ, Path.cwd())


def workspace_of(function: str, options: Mapping[str, Any]) -> Workspace:
    """Return the workspace that a Python function's keywords name. Raises `ParameterError`."""
    types = get_type_hints(WorkspaceOptions)
    require_known(function, options, types)
    return WorkspaceOptions(**typed_values(options, types)).workspace()
