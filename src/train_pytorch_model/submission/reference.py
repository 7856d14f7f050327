"""Where a job finds its data: in a local folder, which is uploaded, or in the cloud."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from train_pytorch_model.words.errors import ParameterError

SCHEMES = ("azureml", "https", "wasbs", "abfss", "adl")
FORMS = "a folder, azureml:NAME:VERSION, azureml:NAME@LABEL, azureml://…, https://…, wasbs://… or abfss://…"
_ASSET = re.compile(r"azureml:[A-Za-z0-9][\w.-]*(:[\w.-]+|@[\w.-]+)")


@dataclass(frozen=True)
class Reference:
    """A reference to a job's data."""

    path: str
    """As written in a job's YAML."""
    local: Path | None = None
    """The local folder; None for data in the cloud."""

    @classmethod
    def parse(cls, text: str, flag: str) -> Self:
        """Parse a reference from the command line. Raises `ParameterError`."""
        scheme, separator, _ = text.partition("://")
        if separator:
            if scheme not in SCHEMES:
                raise ParameterError(
                    f"{flag} {text}: {scheme}:// is not supported by Azure ML. Give {FORMS}."
                )
            if "?" in text:
                # Anyone who can read the job could read the signature.
                raise ParameterError(
                    f"{flag} {text.partition('?')[0]}?…: a signature does not belong in a job. Register the"
                    " container as a datastore of the workspace, and give azureml://datastores/NAME/paths/PATH."
                )
            return cls(text)
        if text.startswith("azureml:"):
            if not _ASSET.fullmatch(text):
                raise ParameterError(
                    f"{flag} {text} names no version: expected azureml:NAME:VERSION or azureml:NAME@latest."
                )
            return cls(text)
        local = Path(text).absolute()
        return cls(str(local), local)
