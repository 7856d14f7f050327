"""A hundred million images: the cost of their list, of an epoch's order and of one rank's share of
it.

    python -m tests.benchmarks.hundred_million_rows [--rows 100000000] [--ranks 64]
        [--batch-size 64]

The ranks of a large job do this before their first step: one rank per node reads the list, and each
makes its own plan. The list has all its rows, but they repeat the same 50,000 files. It takes 10 GB
of disk (--folder) and 7 GB of memory.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.million_rows import LINKS, make_rows
from tests.benchmarks.timing import machine
from train_pytorch_model.data.epoch_plan import plan_training
from train_pytorch_model.formats.image_directory import open_image_directory

CATEGORIES = 1000
GIB = 1 << 30


def main() -> None:
    """Print a table: step, seconds, seconds of processor time, peak memory so far."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--folder", type=Path, help="where to make the list; the temporary folder if not given"
    )
    chosen = parser.parse_args()
    print(f"{chosen.rows:,} rows, {chosen.ranks} ranks of {chosen.batch_size} images")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        make_long_list(Path(folder), chosen.rows)
        print(f"{'':44}{'seconds':>9}{'of a core':>11}{'peak GiB':>10}")
        with measured("the image list, opened and checked"):
            images = open_image_directory(Path(folder), "Training dataset")
    with measured("its fingerprint"):
        images.fingerprint()
    with measured("one rank's plan of an epoch"):
        plan = plan_training(
            len(images), chosen.batch_size, 1, 1, 1, chosen.ranks // 2, chosen.ranks
        )
    with measured("names and classes of its first 1,000 batches"):
        for batch in plan[:1000]:
            for index in batch.indices:
                images.path(int(index))
                images.class_indices[index]
    own = sum(len(batch.indices) for batch in plan)
    print(f"{len(images):,} images, {len(plan):,} steps, {own:,} images of this rank; {machine()}")


def make_long_list(root: Path, rows: int) -> None:
    """Write an ImageDirectory of `rows` rows, rounded down to a multiple of 50,000."""
    make_rows(root, min(rows, LINKS), CATEGORIES)
    image_list = root / "images.lst"
    block = image_list.read_bytes()
    with image_list.open("ab") as file:
        for _ in range(rows // LINKS - 1):
            file.write(block)


@contextmanager
def measured(title: str) -> Iterator[None]:
    """Time the body and print a row of the table."""
    started_at, processor_at = time.perf_counter(), time.process_time()
    yield
    elapsed_s, processor_s = time.perf_counter() - started_at, time.process_time() - processor_at
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    print(f"{title:44}{elapsed_s:9.2f}{processor_s:11.2f}{peak:10.2f}", flush=True)


if __name__ == "__main__":
    main()
