"""Memory of `score --embeddings --rank-by uncertainty`, which does not grow with the number of
images.
"""

import logging
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image

from tests.benchmarks.timing import arguments, machine
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.classifier import BATCH_SIZE, best_device
from train_pytorch_model.inputs.scoring import open_scoring_inputs
from train_pytorch_model.machine.memory import keep_freed_memory
from train_pytorch_model.quality.to_label import MostUncertain
from train_pytorch_model.stories.score import ScoreOptions, score

NUM_TO_LABEL = 1000  # the default


def main() -> None:
    """Print the resident memory as the images are scored, and as more made-up predictions are
    ranked.
    """
    parser = arguments(__doc__, images=False)
    parser.add_argument("--trained-model", type=Path, required=True)
    parser.add_argument(
        "--count", type=int, default=20_000, help="images of 32 px to paint and score"
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="predictions to rank, with 512 features each"
    )
    chosen = parser.parse_args()
    logging.getLogger("train_pytorch_model").setLevel(logging.ERROR)
    keep_freed_memory()
    print(f"{machine()}\n\n| scoring {chosen.count:,} images, after s | resident, MB |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        images = _paint(Path(folder) / "images", chosen.count)
        inputs = open_scoring_inputs(chosen.trained_model, images)
        is_over = threading.Event()
        watching = threading.Thread(target=_watch, args=(is_over,))
        watching.start()
        options = ScoreOptions(None, "float32", NUM_TO_LABEL)
        score(inputs, Path(folder) / "scores", options, World(0, 1, 0, 1, best_device()))
        is_over.set()
        watching.join()
        size = (Path(folder) / "scores" / "embeddings.parquet").stat().st_size
        print(f"\nembeddings.parquet: {size / 1e6:.0f} MB")
    _rank(chosen.rows)


def _paint(root: Path, count: int) -> Path:
    random = np.random.default_rng(0)
    root.mkdir()
    for number in range(count):
        Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(
            root / f"{number}.png"
        )
    return root


def _watch(is_over: threading.Event) -> None:
    started_at = time.perf_counter()
    while not is_over.wait(5):
        print(f"| {time.perf_counter() - started_at:.0f} | {_resident_mb():.0f} |", flush=True)


def _rank(count: int) -> None:
    print("\n| predictions ranked | resident, MB | CPU s |\n|---|---|---|")
    random = np.random.default_rng(0)
    features = random.normal(size=(BATCH_SIZE, 512)).astype(np.float32)
    uncertain, started_s = MostUncertain(NUM_TO_LABEL), time.process_time()
    for number, first in enumerate(range(0, count, BATCH_SIZE), 1):
        probabilities = random.dirichlet(np.ones(10), BATCH_SIZE)
        uncertain.add(np.arange(first, first + BATCH_SIZE), probabilities, features)
        if number % (count // BATCH_SIZE // 5) == 0:
            print(
                f"| {first + BATCH_SIZE:,} | {_resident_mb():.0f} |"
                f" {time.process_time() - started_s:.1f} |"
            )
    number = sum(1 for _ in uncertain.ranked())
    print(f"| {number:,} in order | {_resident_mb():.0f} | {time.process_time() - started_s:.1f} |")


def _resident_mb() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1000


if __name__ == "__main__":
    main()
