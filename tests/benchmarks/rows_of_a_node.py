"""1.28 million rows in several processes of a node: read by one process for all, or by each for itself."""

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.million_rows import arguments_of_rows, make_rows
from tests.benchmarks.timing import ROOT, measure_in_turn, show
from train_pytorch_model.commands.processes import opened_once
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.inputs.bad_images import read_headers


def main() -> None:
    """Print the seconds until the last process has them, and the total memory of all processes."""
    parser = arguments_of_rows(__doc__)
    parser.add_argument("--processes", type=int, default=4)
    chosen = parser.parse_args()
    if chosen.open:
        open_and_stay(chosen.open)
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        make_rows(Path(folder), chosen.rows, chosen.categories)
        measures = {
            f"{title}, {how}": functools.partial(open_in_all, root, chosen.processes, is_launch)
            for title, root in (("image list", Path(folder)), ("plain folders", Path(folder) / "image"))
            for how, is_launch in (("by one", True), ("by each", False))
        }
        print(f"{chosen.rows:,} rows in {chosen.categories:,} categories, {chosen.processes} processes")
        show(measure_in_turn(measures, chosen.repeats))


def open_in_all(root: Path, processes: int, is_launch: bool) -> Mapping[str, float]:
    """Run once: processes launched together on one node, or as many independent ones."""
    command = [sys.executable, "-m", "tests.benchmarks.rows_of_a_node", "--open", str(root)]
    launch = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"} if is_launch else {}
    started_at = time.perf_counter()
    running = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **launch, **({"RANK": str(rank)} if is_launch else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        if not process.stdout.readline():
            sys.exit("a process has failed")
    elapsed_s = time.perf_counter() - started_at
    # While all are alive: memory mapped by several processes counts once, shared among them.
    memory = sum(proportional_bytes(process.pid) for process in running)
    for process in running:
        process.communicate("")
    return {"seconds until all have them": elapsed_s, "memory of all, MB": memory / 1e6}


def open_and_stay(root: Path) -> None:
    """Run one of the processes: what training does before it loads PyTorch, then wait."""

    def opened() -> ImageDirectory:
        directory = open_image_directory(root, "Training dataset")
        read_headers(directory)
        return directory

    directory = opened_once(opened, ["train", str(root)])
    print(len(directory), directory.fingerprint(), flush=True)
    sys.stdin.read()


def proportional_bytes(pid: int) -> int:
    """Return a process's private memory plus its part of shared memory (PSS), in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the system reports no PSS of process {pid}")


if __name__ == "__main__":
    main()
