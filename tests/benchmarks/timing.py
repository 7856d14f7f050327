"""Shared by all benchmarks: contenders measured in turn, and tables of the results."""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from train_pytorch_model.machine.cores import usable_cores

ROOT = Path(__file__).parents[2]
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # of a processor, that decide about speed
# Without the features of newer processors, libraries compute as on one that has only AVX2.
AVX2_ONLY = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}

CONTENDERS = "tests.benchmarks.contenders"

Measure = Callable[[], Mapping[str, float]]
"""One run of a contender: name of a measurement → value."""


def arguments(description: str | None, images: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the flags that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each contender, in turn")
    if images:
        parser.add_argument(
            "--images", type=Path, help="class folders of images; painted if not given"
        )
    return parser


def arguments_of_training(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags of benchmarks that train a network as a whole command."""
    parser = arguments(description)
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    add_avx2(parser)
    return parser


def add_avx2(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--avx2`, which asks for `AVX2_ONLY` in the environment."""
    parser.add_argument(
        "--avx2", action="store_true", help="compute as a CPU without AVX512 and bfloat16"
    )


def measure_in_turn(
    contenders: Mapping[str, Measure], repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Return measurement → contender → values.

    Taking turns, all suffer alike from a busy minute.
    """
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
    """Describe the machine: usable cores, processor and its features, GPUs, and the versions that
    matter.
    """
    import torch
    import torchvision

    model, features = platform.processor() or platform.machine(), []
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        known = dict(
            re.findall(r"^(model name|flags)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
        )
        model = known.get("model name", model)
        features = [flag for flag in FEATURES if flag in known.get("flags", "").split()]
    if os.environ.items() >= AVX2_ONLY.items():
        features = ["of its features only avx2"]
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return (
        f"{usable_cores()} cores of {model} ({' '.join(features)}), {', '.join(gpus) or 'no GPU'},"
        " Python"
        f" {platform.python_version()}, torch {torch.__version__}, torchvision"
        f" {torchvision.__version__}"
    )


def run_json(*command: str | Path, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a program and return the JSON object on its last line of output; exit if it fails.

    `cpu_s` is what all its processes have computed, in seconds; `env` is added to the environment.
    """
    before = os.times()
    given = os.environ | (env or {})
    ended = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT, env=given
    )
    after = os.times()
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{ended.stderr}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    computed_s = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return {"cpu_s": computed_s, **found}


def count_images(folder: Path) -> int:
    """Return how many files class folders have."""
    return sum(path.is_file() for path in folder.rglob("*"))


def paint_photos(root: Path, per_category: int, size: tuple[int, int] = (500, 375)) -> Path:
    """Write class folders of JPEG files as large as photographs of that size: about 100 kB at 500 x
    375.
    """
    random = np.random.default_rng(0)
    for category in ("one", "two", "three", "four"):
        (root / category).mkdir(parents=True)
        for number in range(per_category):
            coarse = random.integers(0, 256, (size[1] // 25, size[0] // 25, 3), dtype=np.uint8)
            smooth = np.asarray(
                Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
            ).astype(int)
            noisy = (smooth + random.integers(-20, 21, smooth.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(root / category / f"{number}.jpg", quality=85)
    return root


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
