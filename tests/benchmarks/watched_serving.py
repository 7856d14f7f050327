"""What `watch` costs a served model: CPU seconds of the same requests with the parameter and
without it, in turns, on one thread; with --against, those of another version of the program, too.

    python -m tests.benchmarks.watched_serving --trained-model DIR --images DIR [--against SRC]
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.timing import arguments, machine

WORKER = """
import base64, sys, time, warnings
from pathlib import Path
import pandas as pd, torch
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.serving import ServedClassifier
from train_pytorch_model.inputs.scoring import open_trained_model
torch.set_num_threads(1)
model, spec = open_trained_model(Path(sys.argv[1]), None)
classifier = ImageClassifier.load(spec, model.weights_path, torch.device("cpu"))
served = ServedClassifier(classifier, model.root)
files = sorted(path for path in Path(sys.argv[2]).rglob("*") if path.is_file())
files = files[:: max(1, len(files) // int(sys.argv[3]))][: int(sys.argv[3])]
table = pd.DataFrame({"image": [base64.b64encode(path.read_bytes()).decode() for path in files]})
rows = [table.iloc[[row]] for row in range(len(table))]
for line in sys.stdin:
    params = {"watch": True} if line.strip() == "on" else None
    began = time.process_time()
    for request in rows:  # one image each, and all at once
        served.predict(request, params)
    served.predict(table, params)
    print(time.process_time() - began, flush=True)
"""


def main() -> None:
    """Print medians of CPU seconds, and ratios to the requests without the parameter."""
    parser = arguments(__doc__, images=False)
    parser.set_defaults(repeats=15)
    parser.add_argument("--trained-model", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--against", type=Path, help="the folder `src` of another version")
    parser.add_argument("--files", type=int, default=64)
    chosen = parser.parse_args()
    print(machine())
    here = _start(chosen, Path("src"))
    contenders = {"without `watch`": (here, "off"), "with `watch`": (here, "on")}
    if chosen.against:
        contenders["the other version"] = (_start(chosen, chosen.against), "off")
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(chosen.repeats + 1):
        for name, (worker, kind) in contenders.items():
            value = _ask(worker, kind)
            if turn:  # the first one warms up
                seconds[name].append(value)
    for worker in {worker for worker, _ in contenders.values()}:
        worker.communicate()
    usual = seconds["without `watch`"]
    for name, values in seconds.items():
        ratios = [value / other for value, other in zip(values, usual, strict=True)]
        print(
            f"{name}: {statistics.median(values):.3f} s ({min(values):.3f} to {max(values):.3f}),"
            f" {statistics.median(ratios) - 1:+.1%}; of the shortest"
            f" {min(values) / min(usual) - 1:+.1%}"
        )


def _start(chosen: argparse.Namespace, source: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "ignore", "-c", WORKER, chosen.trained_model, chosen.images]
    return subprocess.Popen(
        [*map(str, command), str(chosen.files)],
        env=os.environ | {"PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(worker: "subprocess.Popen[str]", kind: str) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{kind}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


if __name__ == "__main__":
    main()
