"""Trials: run the program in separate processes, signal them, wait for them and inspect their
results.
"""

import hashlib
import json
import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults import file_injections, injected
from tests.faults import injections as faults
from tests.ports import free_port
from tests.zygote.client import Forked

HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "MLFLOW_DISABLE_TELEMETRY": "true"}
DEADLINE_S = 120.0  # for any wait: only a hang takes this long

Injection = partial[None]
"""A call of a function in `injections` or `file_injections`, which the trial's process makes."""


def as_text(injections: Sequence[Injection]) -> str:
    """The injections as `injected.py` reads them: functions by their import paths."""
    return pickle.dumps(list(injections)).hex()


def inject(text: str) -> None:
    """Make the calls of `as_text` in this process."""
    for injection in pickle.loads(bytes.fromhex(text)):
        injection()


@dataclass(frozen=True)
class Process:
    """One process of the program."""

    forked: Forked
    stdout: Path
    stderr: Path

    @property
    def pid(self) -> int:
        return self.forked.pid

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def is_alive(self) -> bool:
        return self.forked.wait(0.0) is None

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Return the exit status, -n after signal n.

        At the timeout, kill the process and fail the test.
        """
        status = self.forked.wait(timeout_s)
        if status is None:
            self.send(signal.SIGKILL)
            self.forked.wait()
            raise AssertionError(f"Does not end in {timeout_s} s: {self.stdout.read_text()}")
        return status

    def wait_until_said(self, text: str) -> None:
        wait_until(lambda: text in self.stdout.read_text(), f"{text!r} in {self.stdout}")


def start_process(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    injections: Sequence[Injection],
    said: Path,
) -> Process:
    """Start the program with these arguments and faults; what it says goes to files in `said`."""
    number = len(list(said.iterdir())) // 2
    stdout, stderr = (said / f"{number}.{name}" for name in ("stdout", "stderr"))
    with Path(os.devnull).open() as nothing, stdout.open("a") as out, stderr.open("a") as err:
        forked = Forked(
            [injected.__file__, as_text(injections), *arguments],
            {**os.environ, **HIDDEN, **environment},
            (nothing.fileno(), out.fileno(), err.fileno()),
        )
    return Process(forked, stdout, stderr)


@dataclass(frozen=True)
class Ended:
    """How a job ended: the exit status of each rank, and the output of all ranks together."""

    statuses: list[int]
    stdout: str
    stderr: str

    @property
    def status(self) -> int:
        return self.statuses[0]


@dataclass(frozen=True)
class Job:
    """The processes of one run, in rank order."""

    processes: list[Process]

    def wait(self, timeout_s: float = DEADLINE_S) -> Ended:
        statuses = [process.wait(timeout_s) for process in self.processes]
        stdout, stderr = (
            "".join(getattr(process, name).read_text() for process in self.processes)
            for name in ("stdout", "stderr")
        )
        return Ended(statuses, stdout, stderr)

    def end_as_a_launcher_would(self, grace_s: float) -> None:
        """Kill processes that outlive the grace period: they may not have connected to the one that
        ended.
        """
        deadline = time.monotonic() + grace_s
        while any(process.is_alive() for process in self.processes):
            if time.monotonic() > deadline:
                for process in self.processes:
                    if process.is_alive():
                        process.send(signal.SIGKILL)
            time.sleep(0.05)


@dataclass(frozen=True)
class Bench:
    """Starts trainings of an untrained model on painted images."""

    said: Path
    """Where the processes' output goes."""
    folders: Path
    untrained: Path
    store: Path
    options: tuple[str, ...] = ("--epochs", "2", "--batch-size", "4", "--learning-rate", "0.01")
    always: tuple[Injection, ...] = (
        partial(faults.a_checkpoint_after_every_step),
        partial(file_injections.nothing_waits_for_the_disk),
        partial(faults.one_thread_is_enough),
    )
    easier: tuple[Injection, ...] = (
        partial(faults.every_checkpoint_is_waited_for),
        partial(faults.mlflow_is_left_out),
    )

    def arguments(self, output: Path, *more: str) -> list[str]:
        ports = {
            "--untrained-model": self.untrained,
            "--training-dataset": self.folders / "training",
            "--validation-dataset": self.folders / "validation",
            "--trained-model": output,
        }
        return [
            "train",
            *(str(text) for port in ports.items() for text in port),
            *self.options,
            *more,
        ]

    def start(
        self,
        output: Path,
        *more: str,
        injections: Sequence[Injection] = (),
        ranks: int = 1,
        in_earnest: bool = False,
    ) -> Job:
        """Start a training that writes a checkpoint after every step.

        It waits for each checkpoint and skips MLflow, unless `in_earnest`.
        """
        easier = () if in_earnest else self.easier
        return self.launch(self.arguments(output, *more), [*easier, *injections], ranks)

    def launch(
        self, arguments: Sequence[str], injections: Sequence[Injection] = (), ranks: int = 1
    ) -> Job:
        """Start any command of the program, in `ranks` processes."""
        port = str(free_port())
        processes = []
        for rank in range(ranks):
            environment = {"MLFLOW_TRACKING_URI": f"sqlite:///{self.store}"}
            if ranks > 1:
                environment |= {
                    **{"TORCHELASTIC_RUN_ID": "none", "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    **{"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)},
                    **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
                }
            faults_of_all = [*self.always, *injections]
            processes.append(start_process(arguments, environment, faults_of_all, self.said))
        return Job(processes)

    def train(
        self, output: Path, *more: str, injections: Sequence[Injection] = (), ranks: int = 1
    ) -> Ended:
        """Start a training and wait for its end."""
        return self.start(output, *more, injections=injections, ranks=ranks).wait()


@dataclass(frozen=True)
class Result:
    """The results that must not depend on faults during the run."""

    model: str
    """sha256 of the weights."""
    metrics: tuple[str, ...]
    """The records of metrics.jsonl, without the speed."""


def result_of(output: Path) -> Result:
    """The result in a trained directory, which must be complete."""
    assert (output / "_meta.yaml").exists()
    assert not (output / "_incomplete").exists()
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        assert record.pop("Train images per second") > 0
    model = hashlib.sha256((output / "model").read_bytes()).hexdigest()
    return Result(model, tuple(json.dumps(record) for record in records))


def run_folder_of(output: Path) -> Path:
    return output.with_name(output.name + ".run")


def checkpoints_of(output: Path) -> list[Path]:
    """The manifests of the checkpoints, oldest first."""
    return sorted((run_folder_of(output) / "checkpoints").glob("*.json"))


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait until `is_so` returns true, and fail the test after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)
