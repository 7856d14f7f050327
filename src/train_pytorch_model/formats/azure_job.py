"""Whether this is a job of Azure ML, and the record of an error that such a job leaves."""

import json
import os
from contextlib import suppress
from pathlib import Path

from train_pytorch_model.errors import UserError

OUTPUTS = Path("outputs")  # of an Azure ML job
ERROR_INFO = "error_info.json"


def leave_error_info(error: UserError, rank: int) -> None:
    """Report to an Azure ML job what went wrong."""
    write_record(OUTPUTS / ERROR_INFO, error, rank)


def remove_error_info() -> None:
    """Remove what an earlier start of this job, or a verb before this one, has left on this
    machine.
    """
    with suppress(OSError):
        (OUTPUTS / ERROR_INFO).unlink(missing_ok=True)


def write_record(path: Path, error: UserError, by_rank: int, **more: object) -> None:
    """Write a record if possible.

    All ranks report the same error; rank 0's record takes precedence.
    """
    cause = {"class": type(error).__name__, "code": error.code, "message": str(error)}
    with suppress(OSError):
        if by_rank == 0 or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(cause | {"exit_status": error.exit_status} | more, indent=2))


def is_azure_job() -> bool:
    """Whether Azure ML runs this process."""
    return "AZUREML_RUN_ID" in os.environ
