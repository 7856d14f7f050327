"""Run by the tests: `group.py DATA UNTRAINED OUTPUT`. Process R of a group of N writes
OUTPUT/N/R.json.

PyTorch is loaded once, and each group is forked from this process. The group of two also trains to
the end, each process with its own output and tracking store, to show which of them writes.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.ports import free_port
from tests.ranks.checks import measure, open_inputs, train_and_publish
from train_pytorch_model.distributed.rendezvous import join_world

SIZES = (2, 3)


def main() -> None:
    """Run the groups one after the other."""
    data, untrained_model, output = map(Path, sys.argv[1:])
    for size in SIZES:
        (output / str(size)).mkdir()
        port, started = str(free_port()), []
        for rank in range(size):
            pid = os.fork()
            if pid == 0:
                local_rank, local_size = said_place(rank, size)
                os.environ |= {"TORCHELASTIC_RUN_ID": "none", "RANK": str(rank)}
                os.environ |= {"LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(size)}
                os.environ |= {"LOCAL_WORLD_SIZE": str(local_size)}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                run_process(data, untrained_model, output / str(size))
                return
            started.append(pid)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]
        assert statuses == [0] * size, statuses


def said_place(rank: int, size: int) -> tuple[int, int]:
    """What a launcher says of a process's place on its node.

    Of the group of three, each is told to be alone there, as by launchers of three nodes that are
    one machine.
    """
    return (0, 1) if size == 3 else (rank, size)


def run_process(data: Path, untrained_model: Path, output: Path) -> None:
    """Run one process of a group."""
    with join_world() as world:
        inputs = open_inputs(data, untrained_model)
        record = measure(inputs, world)
        if world.size == 2:
            own = output / f"of-rank-{world.rank}"
            own.mkdir()
            os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{own}/mlflow.db"
            train_and_publish(inputs, world, own / "trained")
            record["written"] = sorted(path.name for path in own.iterdir())
        record["threads_before"] = threads()
    record["threads"] = threads()
    (output / f"{world.rank}.json").write_text(json.dumps(record))


def threads() -> list[str]:
    """The names of this process's threads, including PyTorch's."""
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]


if __name__ == "__main__":
    main()
