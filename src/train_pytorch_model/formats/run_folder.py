"""What a run keeps beside its output until the output is complete.

    <trained model>.run/    config.json     the fingerprint that identifies the run, and its token
                            checkpoints/    see `checkpoint`
                            metrics.jsonl   one JSON object per epoch
                            mlflow_run      the id of the run in MLflow
                            micro_batch     how many images fit into memory at once, after running out of it
                            lock            filelock's marker: who is writing, see `run_lock`
                            status.json     how a failed run ended
                            untrained-…/    the untrained model that `fit` has made

In an Azure ML job, the folder is outputs/train_pytorch_model/ instead: Azure uploads it, and may
restore it on another node. In case it does not, `_run` in the output, a mounted storage, holds a
copy of config and checkpoints. Beside the folder, error_info.json says what went wrong, in the
designer's terms.

A trained directory's manifest.json holds the sizes and sha256 of its files, and the fingerprint of
its run.
"""

import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import OutputDirectoryError, UserError
from train_pytorch_model.formats.azure_job import OUTPUTS, is_azure_job, write_record
from train_pytorch_model.formats.reading import INCOMPLETE, MalformedFileError, read_json
from train_pytorch_model.formats.trained_directory import METRICS, write_metrics
from train_pytorch_model.formats.writing import write_durably

STATUS = "status.json"
CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
LOCK = "lock"
MLFLOW_RUN = "mlflow_run"
MICRO_BATCH = "micro_batch"
COPY = "_run"
TRAINED_MODEL = "trained_model"
UNTRAINED = "untrained-"


class _Config(msgspec.Struct):
    token: str = ""
    fingerprint: dict[str, str] = {}


class RunFolder:
    """The folder of one run; it exists within `run_lock`. In an Azure ML job, `output` keeps a
    copy."""

    def __init__(self, root: Path, output: Path | None = None) -> None:
        self.root, self.output = root, output
        self.metrics_path = root / METRICS
        self.checkpoints = root / CHECKPOINTS
        self.mlflow_run = root / MLFLOW_RUN
        self._micro_batch = root / MICRO_BATCH

    @classmethod
    def beside(cls, trained_model: Path) -> "RunFolder":
        if is_azure_job():
            return cls(OUTPUTS / "train_pytorch_model", trained_model)
        # It may be `..`, or even `/`; a link is not followed.
        output = Path(os.path.abspath(trained_model))  # noqa: PTH100
        return cls(output.parent / f"{output.name}.run")

    @property
    def _config(self) -> _Config:
        for folder in (self.root, *([self.output / COPY] if self.output else [])):
            with suppress(MalformedFileError):
                return read_json(folder / CONFIG, _Config)
        return _Config()

    @property
    def token(self) -> str:
        """Identifies this run in what it leaves elsewhere; empty if no run was started."""
        return self._config.token

    def is_of(self, fingerprint: Mapping[str, str]) -> bool:
        """Whether the folder was left by an earlier start of this run."""
        return self._config.fingerprint == dict(fingerprint)

    @property
    def has_checkpoints(self) -> bool:
        """Raises `OutputDirectoryError` if that cannot be determined: the run must not start over."""
        try:
            return any(path.suffix == ".json" for path in self.checkpoints.iterdir())
        except FileNotFoundError:
            return False
        except OSError as error:
            problem = (
                f"the checkpoints of the run, {self.checkpoints}, cannot be read: {error.strerror}."
            )
            raise OutputDirectoryError(f"{parameter(TRAINED_MODEL)}: {problem}") from error

    def check_resumable(self, fingerprint: Mapping[str, str]) -> None:
        """Raise `OutputDirectoryError` if the checkpoints are of another run, listing what differs."""
        earlier = self._config.fingerprint  # read first: a run that completes now removes it last
        if not self.has_checkpoints or earlier == dict(fingerprint):
            return
        differences = [
            f"{option} was {before} and is {after}" if after else f"{option} has other content"
            for option, before, after in differing_options(earlier, fingerprint)
        ] or ["it was started by another version of this program"]
        lines = "".join(f"\n  {line}" for line in differences)
        raise OutputDirectoryError(
            f"{parameter(TRAINED_MODEL)}: an unfinished run for this output ({self.root}) differs"
            " from this"
            f" one:{lines}\nRepeat its command on the same inputs to resume it, start over with"
            f" {parameter('fresh')}, or name another output."
        )

    def begin(self, fingerprint: Mapping[str, str], fresh: bool) -> str:
        """Clear a run without checkpoints, or any if `fresh`; its token.

        Raises `OutputDirectoryError`.
        """
        # It stays the same, because it identifies what an earlier start has left unfinished in the
        # output.
        token = self.token or secrets.token_hex(16)
        if not fresh:
            self.check_resumable(fingerprint)
        try:
            if fresh or not self.has_checkpoints:
                self.metrics_path.unlink(missing_ok=True)
                if fresh or not self.is_of(fingerprint):
                    self.mlflow_run.unlink(missing_ok=True)
                    self._micro_batch.unlink(missing_ok=True)
                if self.checkpoints.exists():
                    shutil.rmtree(self.checkpoints)
                self._write_config(fingerprint, token)
            (self.root / STATUS).unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(self.root, error) from error
        return token

    def copy_to_output(self, token: str) -> None:
        """Keep a copy of the checkpoints in the output of an Azure ML job. Raises `OSError`."""
        if self.output:
            self.output.mkdir(parents=True, exist_ok=True)
            (self.output / INCOMPLETE).write_text(token)
            copy_run(self.root, self.output / COPY)

    def restore_from_output(self) -> bool:
        """Fetch the copy in the output if it has a newer checkpoint.

        Raises `OutputDirectoryError`.
        """
        if not self.output or _newest(self.output / COPY) <= _newest(self.root):
            return False
        try:
            copy_run(self.output / COPY, self.root)
        except OSError as error:
            raise unwritable(self.root, error) from error
        return True

    def keep(
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
        """How many images at once fit into memory, if this run has run out of it before; else None."""
        if not fresh and self.is_of(fingerprint):
            with suppress(OSError, ValueError):
                return max(1, int(self._micro_batch.read_text()))
        return None

    def write_micro_batch(self, images: int) -> None:
        """Record it for the next start, which has to find out by itself if this fails."""
        with suppress(OSError):
            self._micro_batch.write_text(str(images))

    def fail(self, error: UserError, rank: int) -> None:
        """Record how the run failed, for anyone who cannot see its exit status."""
        last = max(map(str, self.checkpoints.glob("*.json")), default=None)
        write_record(
            self.root / STATUS,
            error,
            rank,
            rank=rank,
            host=socket.gethostname(),
            last_checkpoint=last,
        )

    def remove(self) -> None:
        """Remove the folder, once the output is complete. Files that are not ours stay."""
        for folder in (self.checkpoints, *self.root.glob(f"{UNTRAINED}*")):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            # The token comes last: whoever finds it after an interruption repeats the removal.
            for name in (METRICS, MLFLOW_RUN, MICRO_BATCH, STATUS, CONFIG):
                (self.root / name).unlink(missing_ok=True)
            self.root.rmdir()


def unwritable(folder: Path, error: OSError) -> OutputDirectoryError:
    return OutputDirectoryError(
        f"{parameter(TRAINED_MODEL)}: the folder of the run, {folder}, cannot be written:"
        f" {error.strerror}."
    )


def copy_run(source: Path, target: Path) -> None:
    """Make `target` hold the config and the checkpoints of the folder `source`.

    Raises `OSError`.
    """
    # Manifests come last, so that a copy that was interrupted has no checkpoint whose tensors are
    # missing.
    files = sorted((source / CHECKPOINTS).iterdir(), key=lambda path: path.suffix == ".json")
    (target / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    for path in (source / CONFIG, *files):
        copy = target / path.relative_to(source)
        if not copy.exists() or copy.stat().st_size != path.stat().st_size:
            shutil.copyfile(path, copy)
    for path in (target / CHECKPOINTS).iterdir():
        if not (source / CHECKPOINTS / path.name).exists():
            path.unlink()


def _newest(folder: Path) -> str:
    """The name of the newest checkpoint in a run's folder; empty if there is none."""
    return max((path.name for path in folder.glob(f"{CHECKPOINTS}/*.json")), default="")


def differing_options(
    one: Mapping[str, str], other: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the options that differ, with both values: empty for a directory, whose content
    differs.
    """
    for name in other:
        before, after = one.get(name, ""), other[name]
        if name in ("parameters", "recipe"):
            words = before.split(), after.split()
            was, now = (dict(zip(each[::2], each[1::2], strict=False)) for each in words)
            yield from (
                (key, was.get(key, "not set"), now[key]) for key in now if was.get(key) != now[key]
            )
        elif before != after:
            yield f"--{name.replace('_', '-')}", "", ""
