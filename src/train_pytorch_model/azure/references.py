"""How a submission names data and models: in the cloud or on this machine."""

import re
from collections.abc import Sequence
from pathlib import Path

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError

SCHEMES = ("azureml", "https", "wasbs", "abfss", "adl")
FORMS = (
    "a folder, azureml:NAME:VERSION, azureml:NAME@LABEL, azureml://…, https://…, wasbs://… or"
    " abfss://…"
)
_VERSION = re.compile(r"[A-Za-z0-9][\w.-]*(:[\w.-]+|@[\w.-]+)")  # of an asset
_WORKSPACE = r"subscriptions/[^/]+/resource[gG]roups/[^/]+/(providers/[^/]+/)?workspaces/[^/]+"
_URI = re.compile(
    "azureml://("
    rf"({_WORKSPACE}/)?datastores/[^/]+/paths/.+"
    r"|jobs/[^/]+/outputs/[^/]+/paths/.+"
    rf"|(registries/[^/]+|locations/[^/]+/workspaces/[^/]+|{_WORKSPACE})"
    r"/(data|models|environments)/[^/]+/(versions|labels)/[^/]+/?)"
)


def is_uri(text: str) -> bool:
    """Return whether this is an address in Azure ML: azureml://…"""
    return _URI.fullmatch(text) is not None


def names_version(text: str) -> bool:
    """Return whether this names a version of an asset: NAME:VERSION or NAME@LABEL."""
    return _VERSION.fullmatch(text) is not None


def parse_data(text: str, name: str) -> str | Path:
    """Return an address in the cloud as it is, and any other text as an absolute path.

    `name` is the parameter. Raises `ParameterError`.
    """
    reference = f"{parameter(name)} {text}"
    scheme, separator, _ = text.partition("://")
    if separator:
        _check_address(text, scheme, reference)
        return text
    if text.startswith("azureml:"):
        if not names_version(text.removeprefix("azureml:")):
            raise ParameterError(
                f"{reference} names no version: expected azureml:NAME:VERSION or"
                " azureml:NAME@latest."
            )
        return text
    return Path(text).absolute()


def _check_address(text: str, scheme: str, reference: str) -> None:
    """Raise `ParameterError` for an address that Azure ML cannot read."""
    if scheme not in SCHEMES:
        raise ParameterError(
            f"{reference}: {scheme}:// is not supported by Azure ML. Give {FORMS}."
        )
    if "?" in text:  # anyone who can read the job could read the signature
        raise ParameterError(
            f"{reference.partition('?')[0]}?…: a signature does not belong in a job. Register the"
            " container as a datastore of the workspace, and give"
            " azureml://datastores/NAME/paths/PATH."
        )
    if scheme == "azureml" and not is_uri(text):
        raise ParameterError(
            f"{reference} is no address in Azure ML. Expected azureml://datastores/NAME/paths/PATH"
            " or azureml://registries/NAME/data/NAME/versions/VERSION."
        )


def parse_assignments(texts: Sequence[str], name: str) -> dict[str, str]:
    """Parse the values `NAME=VALUE` of the parameter `name`. Raises `ParameterError`."""
    assignments = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise ParameterError(f"{parameter(name)} {text}: expected NAME=VALUE.")
        assignments[key] = value
    return assignments
