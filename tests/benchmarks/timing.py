"""Shared by all benchmarks: contenders measured in turn, and tables of the results."""

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model.machine.cores import usable_cores

ROOT = Path(__file__).parents[2]

Measure = Callable[[], Mapping[str, float]]
"""One run of a contender: name of a measurement → value."""


def arguments(description: str | None, images: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the flags that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each contender, in turn")
    if images:
        parser.add_argument("--images", type=Path, help="class folders of images; painted if not given")
    return parser


def measure_in_turn(contenders: Mapping[str, Measure], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return measurement → contender → values. Taking turns, all suffer alike from a busy minute."""
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(repeats):
        for contender, measure in contenders.items():
            for what, value in measure().items():
                found.setdefault(what, {}).setdefault(contender, []).append(value)
    return found


def show(found: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Print a table per measurement: medians, spread, and the ratio to the first contender."""
    print(machine())
    for what, values in found.items():
        print(f"\n| {what} | median | lowest to highest | ratio |\n|---|---|---|---|")
        first = statistics.median(next(iter(values.values())))
        for contender, runs in values.items():
            median = statistics.median(runs)
            spread = f"{_short(min(runs))} to {_short(max(runs))}"
            print(f"| {contender} | {_short(median)} | {spread} | {median / first:.2f} |")


def machine() -> str:
    """Describe the machine: usable cores, processor, GPUs, and the versions that matter."""
    import torch
    import torchvision

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(": ")[2] if names else model
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return (
        f"{usable_cores()} cores of {model}, {', '.join(gpus) or 'no GPU'}, Python"
        f" {platform.python_version()}, torch {torch.__version__}, torchvision {torchvision.__version__}"
    )


def run_json(*command: str | Path) -> dict[str, float]:
    """Run a program and return the JSON object on its last line of output; exit if it fails."""
    ended = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT)
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{ended.stderr}")
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def paint_photos(root: Path, per_category: int, size: tuple[int, int] = (500, 375)) -> Path:
    """Write class folders of JPEG files as large as photographs of that size: about 100 kB at 500 x 375."""
    random = np.random.default_rng(0)
    for category in ("one", "two", "three", "four"):
        (root / category).mkdir(parents=True)
        for number in range(per_category):
            coarse = random.integers(0, 256, (size[1] // 25, size[0] // 25, 3), dtype=np.uint8)
            smooth = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)).astype(int)
            noisy = (smooth + random.integers(-20, 21, smooth.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(root / category / f"{number}.jpg", quality=85)
    return root


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
