"""What averaging gradients by NCCL costs in one rank: the step alone, in DDP, and all at once.

One rank sends nothing: this is the part of NCCL and DDP that every process pays, copies and
launches. Deterministic steps are beside them.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tests.benchmarks.timing import machine
from tests.ports import free_port
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.training.deterministic import WORKSPACE, deterministic

STEPS = 30


def main() -> None:
    """Time the ways in turn; print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architecture", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=64)
    chosen = parser.parse_args()
    os.environ.setdefault(WORKSPACE, ":4096:8")  # cuBLAS reads it once
    address = f"tcp://127.0.0.1:{free_port()}"
    dist.init_process_group("nccl", init_method=address, rank=0, world_size=1)
    network = build(chosen.architecture, False, 1000).cuda()
    network = network.to(memory_format=torch.channels_last)
    replicated = torch.nn.parallel.DistributedDataParallel(network, device_ids=[0])
    images = torch.rand(chosen.batch_size, 3, 224, 224, device="cuda")
    images = images.contiguous(memory_format=torch.channels_last)
    targets = torch.zeros(chosen.batch_size, dtype=torch.int64, device="cuda")
    flat = torch.zeros(sum(value.numel() for value in network.parameters()), device="cuda")

    def step(model: torch.nn.Module) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(images)
        torch.autograd.backward(F.cross_entropy(logits.float(), targets))
        network.zero_grad(set_to_none=True)

    ways: dict[str, Callable[[], object]] = {
        "alone": lambda: step(network),
        "in DDP": lambda: step(replicated),
        "all-reduce of all gradients": lambda: dist.all_reduce(flat),
    }
    rows = []
    for name, way in ways.items():
        plain = _median_ms(way)
        with deterministic():
            fixed = _median_ms(way)
        rows.append([name, f"{plain:.2f}", f"{fixed:.2f}", f"{fixed / plain:.2f}"])
    print(machine())
    print("eager, one NCCL rank | ms | deterministic, ms | ratio")
    for row in rows:
        print(" | ".join(row))
    dist.destroy_process_group()


def _median_ms(way: Callable[[], object]) -> float:
    for _ in range(5):
        way()
    times: list[float] = []
    make_event: Any = torch.cuda.Event
    for _ in range(STEPS):
        start, end = (make_event(enable_timing=True) for _ in range(2))
        start.record()
        way()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


if __name__ == "__main__":
    main()
