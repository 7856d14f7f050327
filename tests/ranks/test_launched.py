"""The program in several processes, started by torchrun and by its own launcher."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.painting import paint_folders
from tests.ports import free_port
from tests.programs.program import run_program
from tests.ranks.conftest import torchrun, two_nodes
from tests.zygote.stand_in import stand_in
from train_pytorch_model.distributed.workers import start_workers
from train_pytorch_model.machine.launch import Agent

RUN = ("-m", "train_pytorch_model.run")
PROGRAM = ("-m", "train_pytorch_model")


@pytest.fixture
def _signal_handlers() -> Iterator[None]:
    """Restores the signal handlers of this process, which torch's launcher replaces."""
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def arguments(folders: Path, untrained_model: Path, output: Path, *more: str) -> list[str]:
    """The command line of a short training."""
    return [
        "--untrained-model",
        str(untrained_model),
        "--training-dataset",
        str(folders / "training"),
        "--validation-dataset",
        str(folders / "validation"),
        "--trained-model",
        str(output),
        "--batch-size",
        "4",
        *more,
    ]


# Run by the interpreter before the program: records which process lists which folder.
LISTINGS = """
import os, sys

def note(event, details):
    if event == "os.scandir":
        with open(os.environ["LISTINGS"], "a") as file:
            print(os.getpid(), details[0], file=file)

sys.addaudithook(note)
"""

# Run by the interpreter before the program: a worker has a bug, and no space for a file about it.
BUG = """
import os, resource, socket

if "RANK" in os.environ:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    socket.gethostname = lambda: 1 / 0
"""

# Its workers are processes of the interpreter itself: they end with their parent.
AGENT = f"""
import sys
sys.executable = {sys.executable!r}
from train_pytorch_model.distributed.workers import start_workers
from train_pytorch_model.machine.launch import Agent

if __name__ == "__main__":
    nodes, node_rank, port, *arguments = sys.argv[1:]
    agent = Agent(
        3 - int(nodes), int(nodes), int(node_rank), master_addr="127.0.0.1", master_port=int(port)
    )
    sys.exit(start_workers(agent, ["train", *arguments]))
"""


def test_two_nodes_of_torchrun_on_one_host_train_as_one_machine(
    folders: Path,
    small_network: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, site = tmp_path / "trained", tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(LISTINGS)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    monkeypatch.setenv("LISTINGS", str(site / "listings"))
    ended = two_nodes(*RUN, *arguments(folders, small_network, output, "--epochs", "1"))
    assert ended.returncode == 0, ended.stderr
    listings = [line.split(maxsplit=1) for line in (site / "listings").read_text().splitlines()]
    listed_by = {pid for pid, folder in listings if Path(folder).is_relative_to(folders)}
    assert len(listed_by) == 1  # one process lists for both
    assert {"_meta.yaml", "manifest.json", "metrics.jsonl", "model", "MLmodel"} <= {
        entry.name for entry in output.iterdir()
    }
    assert [entry.name for entry in tmp_path.iterdir()] == ["trained"]
    metrics = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [(record["epoch"], record["step"]) for record in metrics] == [(1, 2)]
    assert "8 images per step = batch size 4 x 2 processes" in ended.stdout
    assert "Peak LR     0.002 = learning rate 0.001 x 2 processes" in ended.stdout
    for line in ("Train PyTorch Model ", "Epoch 1/1: ", "The trained model is in "):
        assert ended.stdout.count(line) == 1
    assert (ended.stdout + ended.stderr).count("Warning") == 1  # about too few images


def test_mpiexec_of_mpich_starts_the_processes_of_one_run(
    folders: Path, small_network: Path, tmp_path: Path
) -> None:
    command = [
        stand_in(),
        *RUN,
        *arguments(folders, small_network, tmp_path / "trained", "--dry-run"),
    ]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    ended = subprocess.run(
        [mpiexec, "-n", "2", *command], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "MPI has started 2 processes, 2 on this node." in ended.stdout
    assert ended.stdout.count("8 images per step = batch size 4 x 2 processes") == 1


@pytest.mark.usefixtures("_signal_handlers")
def test_an_agent_exits_with_4_and_reports_a_failed_training_once(
    folders: Path, small_network: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "trained"
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    status = start_workers(
        Agent(2), ["train", *arguments(folders, small_network, output, "--learning-rate", "1e30")]
    )
    said = capfd.readouterr()
    assert status == 4, said.err
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert said.err.count("TrainingError: ") == 1
    assert said.out.count("the learning rate halved from here on (") == 3
    assert said.err.count("Lower --learning-rate") == 1
    assert "Traceback" not in said.err
    assert not output.exists()
    record = json.loads((tmp_path / "trained.run" / "status.json").read_text())
    assert record["class"] == "TrainingError"
    assert record["exit_status"] == 4
    assert record["message"] in said.err


def test_the_agents_of_two_nodes_connect_and_train_together(
    folders: Path, small_network: Path, tmp_path: Path
) -> None:
    output = tmp_path / "trained"
    command = arguments(folders, small_network, output, "--epochs", "1")
    port = str(free_port())
    nodes = [
        subprocess.Popen(
            [stand_in(), "-c", AGENT, "2", str(node_rank), port, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node_rank in (0, 1)
    ]
    said = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert (output / "_meta.yaml").is_file()
    assert "8 images per step = batch size 4 x 2 processes" in said[0][0]
    assert said[0][0].count("Epoch 1/1: ") == 1
    assert said[1][0] == ""


@pytest.mark.usefixtures("_signal_handlers")
def test_two_processes_score_under_torchrun_and_evaluate_under_an_agent_as_one_does(
    folders: Path, small_network: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trained, images = tmp_path / "trained", tmp_path / "images"
    paint_folders(images, 50)  # 150 images: three batches for two processes
    (images / "red" / "7.png").write_bytes(b"not an image")
    half = (images / "red" / "8.png").read_bytes()
    (images / "red" / "8.png").write_bytes(
        half[: len(half) // 2]
    )  # found by the process that decodes it
    ended = run_program("train", *arguments(folders, small_network, trained, "--epochs", "1"))
    assert ended.status == 0, ended.stderr
    inputs = ("--trained-model", trained, "--dataset", images)
    for verb, flag in (("score", "--scored-dataset"), ("evaluate", "--output")):
        alone = run_program(verb, *inputs, flag, tmp_path / f"{verb}-1")
        assert alone.status == 0, alone.stderr
        command = [verb, *map(str, inputs), flag, str(tmp_path / f"{verb}-2")]
        if verb == "score":
            together = torchrun(2, *PROGRAM, *command)
            status, stdout, stderr = together.returncode, together.stdout, together.stderr
        else:
            capfd.readouterr()
            status = start_workers(Agent(2), command)
            stdout, stderr = capfd.readouterr()
        assert status == 0, stderr
        own = slice(
            alone.stdout.splitlines().index("Warning: 2 unreadable images are left out:"), -1
        )
        last = len(alone.stdout.splitlines()[own]) + 1
        assert stdout.splitlines()[-last:-1] == alone.stdout.splitlines()[own]
        assert stdout.count("2 unreadable images are left out:") == 1
        assert stderr == ""
    for name in ("score-{}/scores.csv", "score-{}/bad_images.csv", "evaluate-{}/metrics.json"):
        of_one, of_two = ((tmp_path / name.format(size)).read_text() for size in (1, 2))
        assert of_two == of_one


def test_a_bug_in_a_worker_is_reported_without_space_for_temporary_files(
    folders: Path,
    small_network: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(BUG)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    command = ["-c", AGENT, "1", "0", "0", *arguments(folders, small_network, tmp_path / "trained")]
    ended = subprocess.run([stand_in(), *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("ZeroDivisionError: division by zero\n") >= 1
    assert re.search(r"\nRank [01] ended with exit code 1\.\n$", ended.stderr)
