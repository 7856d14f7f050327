"""The record of an error that has ended a process, in the designer's terms.

    outputs/error_info.json    {"class": "NotLabeledDatasetError", "code": "0024",
                                "message": "There is no label column …", "exit_status": 3}

An Azure ML job uploads this one; the folder of a run has another, with more entries.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from train_pytorch_model.errors import UserError
from train_pytorch_model.machine.azure_job import OUTPUTS

ERROR_INFO = "error_info.json"


def leave_error_info(error: UserError, rank: int) -> None:
    """Report to an Azure ML job what went wrong."""
    write_record(OUTPUTS / ERROR_INFO, error, rank)


def remove_error_info() -> None:
    """Remove the record of an earlier start of this job, or of a verb before this one."""
    with suppress(OSError):
        (OUTPUTS / ERROR_INFO).unlink(missing_ok=True)


def write_record(
    path: Path, error: UserError, by_rank: int, more: Mapping[str, object] | None = None
) -> None:
    """Write a record, with `more` entries, if possible.

    All ranks report the same error; rank 0's record takes precedence.
    """
    record: dict[str, object] = {
        "class": type(error).__name__,
        "code": error.code,
        "message": str(error),
        "exit_status": error.exit_status,
        **(more or {}),
    }
    with suppress(OSError):
        if by_rank == 0 or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record, indent=2))
