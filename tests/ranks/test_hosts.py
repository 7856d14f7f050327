"""Several hosts train together: started as by Azure ML, by torchrun, or again after one is lost."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.azure_job import PORT, mpi_job, pytorch_job
from tests.faults import injected
from tests.faults.injections import little_patience_with_others, sleep_in_steps
from tests.faults.trials import as_text, wait_until
from tests.painting import paint_folders
from tests.ranks.hosts import Host, NoNamespacesError, end, make_hosts
from tests.zygote.stand_in import stand_in

EPOCHS = 3
DEADLINE_S = 240.0  # for any wait: only a hang takes this long


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    """Two hosts, shared by all tests of the module."""
    try:
        with make_hosts(2) as made:
            yield made
    except NoNamespacesError as error:
        pytest.skip(f"no network namespaces can be made here: {error}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Painted folders for training and validation."""
    root = tmp_path_factory.mktemp("folders")
    paint_folders(root / "training", 8)
    paint_folders(root / "validation", 2, first=100)
    return root


RUN = ("-m", "train_pytorch_model.run")
SLOWLY = partial(sleep_in_steps, seconds=0.2)
RUN_SLOWLY = (injected.__file__, as_text([SLOWLY]), "train")
IN_A_CUT = [partial(little_patience_with_others, seconds=10.0), SLOWLY]
RUN_IN_A_CUT = (injected.__file__, as_text(IN_A_CUT), "train")


def program(
    folders: Path, untrained_model: Path, output: Path, run: Sequence[str] = RUN
) -> list[str]:
    """The component's command."""
    return [
        *(*run, "--untrained-model", str(untrained_model)),
        *("--training-dataset", str(folders / "training")),
        *("--validation-dataset", str(folders / "validation")),
        *("--trained-model", str(output)),
        *("--batch-size", "2", "--epochs", str(EPOCHS)),
    ]


def start_as_azure_does(
    hosts: Sequence[Host],
    command: Sequence[str],
    logs: Path,
    job: Callable[[int, int, str], list[dict[str, str]]] = pytorch_job,
    per_node: int = 1,
) -> list[subprocess.Popen[bytes]]:
    """Start `per_node` processes on each host, with the variables of that kind of job."""
    return [
        hosts[rank // per_node].start([stand_in(), *command], environment, logs / f"{rank}.log")
        for rank, environment in enumerate(job(len(hosts), per_node, hosts[0].address))
    ]


def start_as_our_launcher_does(
    hosts: Sequence[Host], command: Sequence[str], logs: Path
) -> list[subprocess.Popen[bytes]]:
    """Start a torchrun on each host, with the line that the program prints on a node with several
    GPUs.
    """
    return [
        host.start(
            [
                *(stand_in(), "-m", "torch.distributed.run", f"--nnodes={len(hosts)}"),
                *(
                    f"--node-rank={rank}",
                    f"--master-addr={hosts[0].address}",
                    f"--master-port={PORT}",
                ),
                *("--nproc-per-node=1", *command),
            ],
            {},
            logs / f"{rank}.log",
        )
        for rank, host in enumerate(hosts)
    ]


def said(logs: Path) -> str:
    """The output of all hosts."""
    return "\n".join(f"[{path.name}]\n{path.read_text()}" for path in sorted(logs.glob("*.log")))


def wait_for(pattern: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the log matches the pattern."""
    while not re.search(pattern, log.read_text()):
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def together(
    hosts: list[Host],
    folders: Path,
    small_network: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, str]:
    """The output directory and logs of an undisturbed run on two nodes of Azure ML."""
    logs = tmp_path_factory.mktemp("together")
    command = program(folders, small_network, logs / "trained")
    processes = start_as_azure_does(hosts, command, logs)
    assert [process.wait() for process in processes] == [0, 0], said(logs)
    return logs / "trained", said(logs)


def test_two_nodes_started_by_azure_ml_train_together(together: tuple[Path, str]) -> None:
    output, text = together
    assert (output / "_meta.yaml").is_file()
    assert "4 images per step = batch size 2 x 2 processes" in text
    assert text.count(f"Epoch {EPOCHS}/{EPOCHS}: ") == 1


def test_two_nodes_of_two_processes_started_by_azure_ml_connect(
    hosts: list[Host], folders: Path, small_network: Path, tmp_path: Path
) -> None:
    command = [*program(folders, small_network, tmp_path / "trained"), "--dry-run"]
    processes = start_as_azure_does(hosts, command, tmp_path, per_node=2)
    assert [process.wait() for process in processes] == [0] * 4, said(tmp_path)
    assert "Azure ML has started 2 processes per node, on 2 nodes; no more are started." in said(
        tmp_path
    )
    assert said(tmp_path).count("8 images per step = batch size 2 x 4 processes") == 1


def test_two_nodes_train_the_same_model_under_torchrun(
    hosts: list[Host],
    folders: Path,
    small_network: Path,
    tmp_path: Path,
    together: tuple[Path, str],
) -> None:
    processes = [
        host.start(
            [
                *(
                    stand_in(),
                    "-m",
                    "torch.distributed.run",
                    "--nnodes=2",
                    "--nproc-per-node=1",
                ),
                *(
                    "--rdzv-backend=c10d",
                    f"--rdzv-endpoint={hosts[0].address}:{PORT}",
                    "--rdzv-id=test",
                ),
                # On real hosts torchrun finds by host name which of them has the address.
                *(f"--rdzv-conf=is_host={int(rank == 0)}", f"--local-addr={host.address}"),
                *program(folders, small_network, tmp_path / "trained"),
            ],
            {},
            tmp_path / f"{rank}.log",
        )
        for rank, host in enumerate(hosts)
    ]
    assert [process.wait() for process in processes] == [0, 0], said(tmp_path)
    assert_same_model(tmp_path / "trained", together[0])


def test_a_run_resumes_from_the_checkpoint_when_a_lost_node_is_back_under_mpi_too(
    hosts: list[Host],
    folders: Path,
    small_network: Path,
    tmp_path: Path,
    together: tuple[Path, str],
) -> None:
    ports = folders, small_network, tmp_path / "trained"
    first = start_as_azure_does(hosts, program(*ports, RUN_SLOWLY), tmp_path)
    wait_for(r"Epoch 1/\d+: ", tmp_path / "0.log", first[0])
    end(first[1])
    assert first[0].wait() != 0, said(tmp_path)
    assert (
        said(tmp_path).count("have lost each other: another process of the run does not answer. ")
        == 1
    )
    again = start_as_azure_does(hosts, program(*ports), tmp_path, mpi_job)
    assert [process.wait() for process in again] == [0, 0], said(tmp_path)
    assert "MPI has started 2 processes, 1 on this node." in said(tmp_path)
    assert "Resumed     " in said(tmp_path)
    assert_same_model(tmp_path / "trained", together[0])


def test_hosts_that_lose_each_other_end_and_resume_when_the_network_is_back(
    hosts: list[Host],
    folders: Path,
    small_network: Path,
    tmp_path: Path,
    together: tuple[Path, str],
) -> None:
    ports = folders, small_network, tmp_path / "trained"
    first = start_as_our_launcher_does(hosts, program(*ports, RUN_IN_A_CUT), tmp_path)
    wait_for(r"Epoch 1/\d+: ", tmp_path / "0.log", first[0])
    hosts[1].cut()
    try:
        assert [process.wait(DEADLINE_S) for process in first] == [1, 1], said(tmp_path)
    finally:
        hosts[1].mend()
    for host in (0, 1):
        text = (tmp_path / f"{host}.log").read_text()
        assert (
            len(re.findall("^LostRankError: .*: another process .* does not answer", text, re.M))
            == 1
        ), text
    wait_until(lambda: not any(host.processes() for host in hosts), "all have ended")
    again = start_as_our_launcher_does(hosts, program(*ports), tmp_path)
    assert [process.wait(DEADLINE_S) for process in again] == [0, 0], said(tmp_path)
    assert "Resumed     " in said(tmp_path)
    assert_same_model(tmp_path / "trained", together[0])


def assert_same_model(output: Path, other: Path) -> None:
    """The models are equal bit for bit."""
    assert (output / "model").read_bytes() == (other / "model").read_bytes()
