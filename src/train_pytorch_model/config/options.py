"""Types of options of the command line that `--help` shows without a default."""

from pathlib import Path
from typing import Annotated, Any

import tyro


def shown_as(metavar: str) -> Any:
    """How `--help` shows the value of an option that may be left out."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Switch = Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help_behavior_hint="")]
"""A flag that is off unless given: `--quiet`, without a `--no-quiet`."""
OptionalPath = Annotated[Path | None, shown_as("PATH")]
OptionalInt = Annotated[int | None, shown_as("INT")]
OptionalName = Annotated[str | None, shown_as("NAME")]
