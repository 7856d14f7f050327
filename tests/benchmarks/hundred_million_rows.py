"""A hundred million images: what their list, the order of an epoch and one rank's share of it cost.

    python -m tests.benchmarks.hundred_million_rows [--rows 100000000] [--ranks 64] [--batch-size 64]

No files are made: it is what every rank of a large job holds and does before the first step of an epoch.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tests.benchmarks.timing import machine
from train_pytorch_model.formats.packed import PackedNames
from train_pytorch_model.plan import plan_training

NAME = b"0000/00000000.jpg"  # category folder and file, as in ImageNet's manner
GIB = 1 << 30


def main() -> None:
    """Print a table: step, seconds, peak memory so far."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    print(f"{arguments.rows:,} rows, {arguments.ranks} ranks of {arguments.batch_size} images; {machine()}")
    print(f"{'':44}{'seconds':>9}{'peak GiB':>10}")
    with measured("names, offsets and class indices, in buffers"):
        offsets = np.arange(0, (arguments.rows + 1) * len(NAME), len(NAME), dtype=np.int64)
        names = PackedNames(NAME * arguments.rows, offsets)
        class_indices = np.arange(arguments.rows, dtype=np.int32) % 1000
    with measured("one rank's plan of an epoch"):
        plan = plan_training(
            arguments.rows, arguments.batch_size, 1, 1, 1, arguments.ranks // 2, arguments.ranks
        )
    with measured("names and classes of its first 1,000 batches"):
        total = sum(len(names[int(i)]) + int(class_indices[i]) for b in plan[:1000] for i in b.indices)
    print(
        f"{len(plan):,} steps, {sum(len(batch.indices) for batch in plan):,} images of this rank; {total:,}"
    )


@contextmanager
def measured(title: str) -> Iterator[None]:
    """A row of the table."""
    started_at = time.perf_counter()
    yield
    seconds = time.perf_counter() - started_at
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    print(f"{title:44}{seconds:9.2f}{peak:10.2f}", flush=True)


if __name__ == "__main__":
    main()
