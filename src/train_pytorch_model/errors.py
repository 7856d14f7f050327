"""The errors that a user can fix, by their documented names, with exit statuses.

An error of this module ends the program with one message and no traceback. Its text says what is
wrong, where, what was expected, what was found and what to do. Any other exception that escapes is
a bug.
"""

import errno
from typing import Any, ClassVar

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # an OSError's `errno`


class UserError(Exception):
    """Abstract. An error that the user can fix; the program exits with `exit_status`."""

    exit_status: ClassVar[int]
    code: ClassVar[str] = ""  # the designer's number for the error; empty if it has none

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows instead of a traceback."""
        return f"{type(self).__name__}: {self}".splitlines()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text: each subclass's `__init__` takes other arguments."""
        return UserError.__new__, (type(self), *self.args), self.__dict__


class ParameterError(UserError):
    """One or more parameters are out of range, or the command line is wrong."""

    exit_status = 2
    code = "0004"


class OutputDirectoryError(UserError):
    """The output directory cannot be written, or holds something already."""

    exit_status = 2


class UnfinishedOutputError(OutputDirectoryError):
    """The output directory could not be completed, as on a full disk, and has been removed."""

    exit_status = 4


class InvalidDatasetError(UserError):
    """An image directory cannot be used."""

    exit_status = 3
    code = "0018"

    def __init__(self, dataset: str, reason: str, hint: str = "") -> None:
        separator = "" if hint.startswith("\n") else " "
        super().__init__(f"{dataset} is not valid, reason: {reason}{separator}{hint}".rstrip())


class NotLabeledDatasetError(UserError):
    """Training or validation images come without categories."""

    exit_status = 3
    code = "0024"

    def __init__(self, dataset: str, hint: str) -> None:
        super().__init__(f'There is no label column in "{dataset}". {hint}')


class _InvalidDirectoryError(UserError):
    """Abstract. A directory of the designer is not what it should be."""

    exit_status = 3
    kind: ClassVar[str]  # the directory's type in the designer

    def __init__(self, argument: str, reason: str, hint: str = "") -> None:
        super().__init__(f'{self.kind} "{argument}" is invalid. Reason: {reason} {hint}'.rstrip())


class InvalidModelDirectoryError(_InvalidDirectoryError):
    """A directory is not a model directory, is incomplete, or holds no PyTorch image classifier."""

    code = "0159"
    kind = "ModelDirectory"


class InvalidTransformationDirectoryError(_InvalidDirectoryError):
    """A directory holds no transformation, or one that cannot be applied to images."""

    code = "0158"
    kind = "TransformationDirectory"


class FailedToDownloadFilesError(UserError):
    """Pretrained weights could not be downloaded."""

    exit_status = 3
    code = "0162"

    def __init__(self, file_names: str, hint: str) -> None:
        super().__init__(f'Failed to download "{file_names}" due to internet error. {hint}')


class TrainingError(UserError):
    """Training started and could not continue."""

    exit_status = 4


class CheckpointError(TrainingError):
    """The checkpoints of an interrupted run cannot be read."""


class LostRankError(TrainingError):
    """Another process of the run has ended or hangs. Reported by one process of each host."""


class FailedWorkersError(TrainingError):
    """Processes that this one has started have failed, with this exit status, and have said why."""

    def __init__(self, status: int) -> None:
        super().__init__(f"The processes of the run ended with status {status}.")
        self.status = status


class SystemLimitError(TrainingError):
    """The system starts no further thread or process."""


class ModuleOutOfMemoryError(TrainingError):
    """The batch does not fit into the memory of the device."""

    code = "0138"

    def __init__(self, what: str, images_at_once: int) -> None:
        super().__init__(
            f"Memory has been exhausted, unable to complete running of module. Details: {what}"
        )
        self.images_at_once = images_at_once  # the micro-batch that the next start should try


class ServiceError(UserError):
    """Azure ML cannot be reached, refuses a request, or takes too long."""

    exit_status = 4

    def __init__(self, text: str, is_transient: bool = False) -> None:
        super().__init__(text)
        self.is_transient = is_transient


class JobFailedError(UserError):
    """A job in Azure ML has ended without a model."""

    exit_status = 4
