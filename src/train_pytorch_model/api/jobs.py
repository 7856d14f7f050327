"""`submit`, for Python and notebooks: a training in Azure ML, as an object.

The options are those of the command line, but for what a `Job` does: waiting, downloading.
"""

import html
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from train_pytorch_model.api.model import AnyPath, Model, load
from train_pytorch_model.azure.local_data import check_local_data
from train_pytorch_model.azure.rules import check_submission
from train_pytorch_model.azure.submission import DATA, Submission
from train_pytorch_model.azure.workspace_options import WorkspaceOptions, workspace_of
from train_pytorch_model.config.given_values import path_of, typed_values
from train_pytorch_model.config.keyword_options import require_known, set_signature
from train_pytorch_model.config.options import assemble, options_in
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.errors import ParameterError, ServiceError, UserError
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.machine.console import logger, shown_on_console

if TYPE_CHECKING:
    from train_pytorch_model.azure.service import Job as SentJob
    from train_pytorch_model.azure.service import Service

_WORKSPACE = {option.name: option for option in options_in(WorkspaceOptions)}
_OPTIONS = {option.name: option for option in options_in(Submission)} | _WORKSPACE
_TYPES = {
    name: hint
    for kind in (Submission, TrainConfig, WorkspaceOptions)
    for name, hint in get_type_hints(kind).items()
}
_METHODS = {
    "download": "job.download(FOLDER)",
    "wait_limit": "job.wait(MINUTES)",
    "dry_run": "`train-pytorch-model submit --dry-run` in a shell",
}


class Job:
    """A training in Azure ML; a notebook shows its phase and a link to it."""

    def __init__(self, service: "Service", job: "SentJob", register: str | None = None) -> None:
        """Hold a job that `submit` has sent, which registers its model under this name."""
        self._service = service
        self._job = job
        self._register = register

    @property
    def name(self) -> str:
        """Return its name in Azure ML, by which `find_job` finds it later."""
        return str(self._job.name)

    @property
    def url(self) -> str:
        """Return its page in the portal, with its log, metrics and outputs."""
        return str(self._job.studio_url)

    @property
    def status(self) -> str:
        """Return its phase in Azure's words, such as Queued, Running and Completed."""
        return self._service.phases(self._job)[""]

    def wait(self, limit: int | None = None) -> "Job":
        """Show the phases and the log of the job until it is complete; return it.

        `limit` is in minutes. Ctrl-C or "Interrupt" stops the waiting, not the job. Raises
        `JobFailedError`, and `ServiceError` if the job takes longer or Azure cannot be reached.
        """
        from train_pytorch_model.azure.trained_model import describe
        from train_pytorch_model.azure.watch import follow

        limit = typed_values({"limit": limit}, {"limit": int | None})["limit"]
        if limit is not None and limit < 0:
            raise ParameterError(f"`limit` should not be negative; it is {limit}.")
        with shown_on_console():
            try:
                follow(self._service, self._job, limit)
            except (KeyboardInterrupt, SystemExit, ServiceError):
                logger.info(f"Job {self.name} continues: {self.url}")
                logger.info("  job.wait()    # go on watching it")
                logger.info("  job.cancel()  # end it")
                raise
            if self._register:
                logger.info(f"The trained model is registered as {self._register}")
                describe(self._service, self._job, self._register, None)
        return self

    def download(self, folder: AnyPath) -> Model:
        """Download the trained model of a complete job to a new or empty folder, and open it.

        Raises `JobFailedError`, `OutputDirectoryError`, `ServiceError`.
        """
        from train_pytorch_model.azure.trained_model import download
        from train_pytorch_model.azure.watch import require_completed

        target = path_of("folder", folder)
        check_output(target, "folder")
        require_completed(self._job, self.status)
        with shown_on_console():
            download(self._service, self._job, target, "folder")
        return load(target)

    def cancel(self) -> None:
        """Ask Azure ML to end the job, which takes minutes; one that has ended stays as it is."""
        from train_pytorch_model.azure.watch import is_over

        with shown_on_console():
            status = self.status
            if is_over(status):
                logger.info(f"Job {self.name} is {status}: there is nothing to cancel.")
                return
            self._service.cancel(self._job)
            logger.info(f"Job {self.name} is being cancelled: {self.url}")

    def __repr__(self) -> str:
        return f"Job({self.name!r}: {self.url})"

    def _repr_html_(self) -> str:
        link = html.escape(self.url)
        try:
            status = self.status
        except UserError as error:  # a notebook shows the job also without a network
            status = str(error)
        name = html.escape(self.name)
        return f'Job <a href="{link}" target="_blank">{name}</a>: {html.escape(status)}'


def submit(**options: Any) -> Job:
    """Train on an Azure ML cluster: check everything, send the job and return it.

    `training_dataset` and `validation_dataset` are folders, which are uploaded, or addresses such
    as `azureml:NAME:VERSION`. The options are those of the command line, as `help(submit)` lists
    them. Raises a `UserError`, such as `ParameterError`, `InvalidDatasetError` or `ServiceError`.
    """
    for name in options:
        if name in _METHODS:
            raise ParameterError(f"submit has no option {name!r} in Python: use {_METHODS[name]}.")
    require_known("submit", options, _OPTIONS)
    values = typed_values({name: _as_text(name, value) for name, value in options.items()}, _TYPES)
    submission = assemble(Submission, values)
    with shown_on_console():
        check_submission(submission)
        workspace = assemble(WorkspaceOptions, values).workspace()
        check_local_data(submission)

        from train_pytorch_model.stories.submit import start

        service, sent = start(submission, workspace)
        job = Job(service, sent, submission.register)
        logger.info("Next, after `job = submit(…)`:")
        logger.info("  job.wait()                    # watch it to its end")
        logger.info('  model = job.download("FOLDER")  # the trained model')
        logger.info(f"Later: `job = find_job({job.name!r})`")
    return job


def _as_text(name: str, value: Any) -> Any:
    """Return paths of data, and mappings of names to values, as the command line writes them."""
    if name in DATA and isinstance(value, os.PathLike):
        return os.fspath(value)
    if name in ("tags", "environment_variables") and isinstance(value, Mapping):
        return [f"{key}={text}" for key, text in value.items()]
    return value


def find_job(name: str, **workspace: Any) -> Job:
    """Return a job that was submitted earlier, also from elsewhere.

    The options name the workspace, as those of `submit` do. Raises `ParameterError` if there is no
    such job, and `ServiceError`.
    """
    name = typed_values({"name": name}, {"name": str})["name"]
    address = workspace_of("find_job", workspace)

    from train_pytorch_model.azure.service import Service

    with shown_on_console():
        service = Service(address)
        return Job(service, service.find_job(name))


set_signature(submit, _OPTIONS.values(), _TYPES)
set_signature(find_job, _WORKSPACE.values(), _TYPES)
