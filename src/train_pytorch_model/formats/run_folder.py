"""What a run keeps beside its output until the output is complete.

    <trained model>.run/    config.json     the fingerprint that identifies the run, and its token
                            checkpoints/    see `checkpoint`
                            metrics.jsonl   one JSON object per epoch
                            mlflow_run      the id of the run in MLflow
                            micro_batch     how many images fit into memory at once, if not all
                            lock            filelock's marker: who is writing, see `run_lock`
                            status.json     how a failed run ended
                            untrained-…/    the untrained model that `fit` has made
                            race-…/         what a race of networks has computed so far
                            replace…/       see `replacing`

In an Azure ML job, the folder is outputs/train_pytorch_model/ instead: Azure uploads it, and may
restore it on another node. In case it does not, `_run` in the output, a mounted storage, holds a
copy of config and checkpoints.
"""

import json
import os
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import OutputDirectoryError, UserError
from train_pytorch_model.formats.error_record import write_record
from train_pytorch_model.formats.fingerprint import differing_options
from train_pytorch_model.formats.reading import INCOMPLETE, MalformedFileError, read_json
from train_pytorch_model.formats.replacing import REPLACED, REPLACEMENT
from train_pytorch_model.formats.trained_directory import METRICS, write_metrics
from train_pytorch_model.formats.writing import write_durably
from train_pytorch_model.machine.azure_job import OUTPUTS, is_azure_job

STATUS = "status.json"
CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
LOCK = "lock"
MLFLOW_RUN = "mlflow_run"
MICRO_BATCH = "micro_batch"
UNTRAINED = "untrained-"
RACE_WORK = "race-"
COPY = "_run"  # in the output of an Azure ML job
OUTPUT_PARAMETER = "trained_model"  # names the output, beside which the folder is


class _Config(msgspec.Struct):
    token: str = ""
    fingerprint: dict[str, str] = {}


class RunFolder:
    """The folder of one run, which exists within `run_lock`.

    In an Azure ML job, `output` holds a copy.
    """

    def __init__(self, root: Path, output: Path | None = None) -> None:
        self.root = root
        self.output = output
        self.metrics_path = root / METRICS
        self.checkpoints = root / CHECKPOINTS
        self.mlflow_run = root / MLFLOW_RUN
        self._micro_batch = root / MICRO_BATCH

    @classmethod
    def beside(cls, trained_model: Path) -> "RunFolder":
        """Return the folder of the run whose output is `trained_model`."""
        if is_azure_job():
            return cls(OUTPUTS / "train_pytorch_model", trained_model)
        # It may be `..`, or even `/`; a link is not followed.
        output = Path(os.path.abspath(trained_model))  # noqa: PTH100
        return cls(output.parent / f"{output.name}.run")

    @property
    def _config(self) -> _Config:
        folders = [self.root]
        if self.output:
            folders.append(self.output / COPY)
        for folder in folders:
            with suppress(MalformedFileError):
                return read_json(folder / CONFIG, _Config)
        return _Config()

    @property
    def token(self) -> str:
        """Return what identifies the run in files elsewhere; empty if no run was started."""
        return self._config.token

    def belongs_to(self, fingerprint: Mapping[str, str]) -> bool:
        """Return whether an earlier start of the run with this fingerprint wrote the folder."""
        return self._config.fingerprint == dict(fingerprint)

    @property
    def has_checkpoints(self) -> bool:
        """Return whether there are checkpoints.

        Raises `OutputDirectoryError` if that cannot be determined: the run must not start over.
        """
        try:
            return any(path.suffix == ".json" for path in self.checkpoints.iterdir())
        except FileNotFoundError:
            return False
        except OSError as error:
            problem = (
                f"the checkpoints of the run, {self.checkpoints}, cannot be read: {error.strerror}."
            )
            raise OutputDirectoryError(f"{parameter(OUTPUT_PARAMETER)}: {problem}") from error

    def check_resumable(self, fingerprint: Mapping[str, str]) -> None:
        """Raise `OutputDirectoryError` if the checkpoints are another run's.

        The message lists what differs.
        """
        earlier = self._config.fingerprint  # read first: a run that completes now removes it last
        if not self.has_checkpoints or earlier == dict(fingerprint):
            return
        differences = [
            f"{option} was {before} and is {after}" if after else f"{option} has other content"
            for option, before, after in differing_options(earlier, fingerprint)
        ]
        if not differences:
            differences = ["it was started by another version of this program"]
        lines = "".join(f"\n  {line}" for line in differences)
        raise OutputDirectoryError(
            f"{parameter(OUTPUT_PARAMETER)}: an unfinished run for this output ({self.root})"
            f" differs from this one:{lines}\nRepeat its command on the same inputs to resume it,"
            f" start over with {parameter('fresh')}, or name another output."
        )

    def begin(self, fingerprint: Mapping[str, str], fresh: bool) -> str:
        """Prepare the folder for a run and return its token.

        A run without checkpoints is cleared, and any run if `fresh`. Raises `OutputDirectoryError`.
        """
        # It stays the same: it identifies the unfinished output of an earlier start.
        token = self.token or secrets.token_hex(16)
        if not fresh:
            self.check_resumable(fingerprint)
        try:
            if fresh or not self.has_checkpoints:
                self._clear(with_discoveries=fresh or not self.belongs_to(fingerprint))
                self._write_config(fingerprint, token)
            (self.root / STATUS).unlink(missing_ok=True)
        except OSError as error:
            raise unwritable_error(self.root, error) from error
        return token

    def _clear(self, with_discoveries: bool) -> None:
        """Remove metrics and checkpoints, and the MLflow run and micro-batch `with_discoveries`."""
        self.metrics_path.unlink(missing_ok=True)
        if with_discoveries:
            self.mlflow_run.unlink(missing_ok=True)
            self._micro_batch.unlink(missing_ok=True)
        if self.checkpoints.exists():
            shutil.rmtree(self.checkpoints)

    def copy_to_output(self, token: str) -> None:
        """Copy config and checkpoints to the output of an Azure ML job. Raises `OSError`."""
        if self.output:
            self.output.mkdir(parents=True, exist_ok=True)
            (self.output / INCOMPLETE).write_text(token)
            copy_run(self.root, self.output / COPY)

    def restore_from_output(self) -> bool:
        """Fetch the copy in the output if it has a newer checkpoint, and return whether it has.

        Raises `OutputDirectoryError`.
        """
        if not self.output:
            return False
        if _newest_checkpoint(self.output / COPY) <= _newest_checkpoint(self.root):
            return False
        try:
            copy_run(self.output / COPY, self.root)
        except OSError as error:
            raise unwritable_error(self.root, error) from error
        return True

    def record_history(
        self, fingerprint: Mapping[str, str], token: str, history: Sequence[Mapping[str, float]]
    ) -> None:
        """Write the metrics of the epochs, and the config if it was lost. Raises `OSError`."""
        if not self.token:
            self.root.mkdir(parents=True, exist_ok=True)
            self._write_config(fingerprint, token)
        write_metrics(self.metrics_path, history)

    def _write_config(self, fingerprint: Mapping[str, str], token: str) -> None:
        config = {"token": token, "fingerprint": dict(fingerprint)}
        write_durably(self.root / CONFIG, json.dumps(config, indent=2).encode("ascii"))

    def read_micro_batch(self, fingerprint: Mapping[str, str], fresh: bool) -> int | None:
        """Return how many images at once fit into memory.

        None if this run has not run out of memory before.
        """
        if not fresh and self.belongs_to(fingerprint):
            with suppress(OSError, ValueError):
                return max(1, int(self._micro_batch.read_text()))
        return None

    def write_micro_batch(self, images: int) -> None:
        """Record it for the next start, which has to try by itself if this fails."""
        with suppress(OSError):
            self._micro_batch.write_text(str(images))

    def record_failure(self, error: UserError, rank: int) -> None:
        """Record how the run failed, for anyone who cannot see its exit status."""
        last = max(map(str, self.checkpoints.glob("*.json")), default=None)
        more = {"rank": rank, "host": socket.gethostname(), "last_checkpoint": last}
        write_record(self.root / STATUS, error, rank, more)

    def remove(self) -> None:
        """Remove the folder, once the output is complete. Files that are not ours stay."""
        ours = (f"{UNTRAINED}*", f"{RACE_WORK}*", REPLACEMENT, REPLACED)
        for folder in (self.checkpoints, *(path for name in ours for path in self.root.glob(name))):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            # The token comes last: whoever finds it after an interruption repeats the removal.
            for name in (METRICS, MLFLOW_RUN, MICRO_BATCH, STATUS, CONFIG):
                (self.root / name).unlink(missing_ok=True)
            self.root.rmdir()


def unwritable_error(folder: Path, error: OSError) -> OutputDirectoryError:
    """Return the error of a run whose folder cannot be written."""
    return OutputDirectoryError(
        f"{parameter(OUTPUT_PARAMETER)}: the folder of the run, {folder}, cannot be written:"
        f" {error.strerror}."
    )


def copy_run(source: Path, target: Path) -> None:
    """Make `target` hold the config and the checkpoints of the folder `source`.

    Raises `OSError`.
    """
    # Manifests come last: an interrupted copy has no checkpoint whose tensors are missing.
    files = sorted((source / CHECKPOINTS).iterdir(), key=lambda path: path.suffix == ".json")
    (target / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    for path in (source / CONFIG, *files):
        copy = target / path.relative_to(source)
        if not copy.exists() or copy.stat().st_size != path.stat().st_size:
            shutil.copyfile(path, copy)
    for path in (target / CHECKPOINTS).iterdir():
        if not (source / CHECKPOINTS / path.name).exists():
            path.unlink()


def _newest_checkpoint(folder: Path) -> str:
    """Return the name of the newest checkpoint in a run's folder; empty if there is none."""
    names = [path.name for path in folder.glob(f"{CHECKPOINTS}/*.json")]
    return max(names, default="")
