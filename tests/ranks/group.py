"""Run by torchrun: `group.py DATA UNTRAINED OUTPUT`. Every process writes OUTPUT/<rank>.json.

A group of two also trains to the end, each process with its own output and tracking store, to show which
of them writes.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.ranks.checks import measure, open_inputs, train_and_publish
from train_pytorch_model.distributed.world import join_world


def main() -> None:
    """Run one process of a group."""
    data, untrained_model, output = map(Path, sys.argv[1:])
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
