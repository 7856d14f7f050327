"""The training step of many networks on images of many sizes, beside that of a plain script.

Both keep freed memory, which a plain script does not: that is a tenth of its step. The limit is the
ratio of a step whose operations are all large matrix products. The shortest of several turns
counts: noise only adds.
"""

import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks.cpu_step import rate_of_products
from tests.benchmarks.timing import machine
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.machine.memory import keep_freed_memory
from train_pytorch_model.networks.cpu_convolutions import adapt_to_cpu
from train_pytorch_model.training.optimizer import make_optimizer, set_learning_rate

ARCHITECTURES = (
    "resnet18",
    "resnet50",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "densenet121",
    "regnet_y_400mf",
    "resnext50_32x4d",
    "convnext_tiny",
    "swin_t",
)
SIZES = (16, 32, 64, 128, 224, 320)
CATEGORIES, MIN_S = 10, 0.2
Step = Callable[[], None]


def show_sizes(
    architectures: Sequence[str],
    sizes: Sequence[int],
    batch_size: int,
    dtype: torch.dtype,
    repeats: int,
) -> None:
    """Print CPU seconds of a plain step and of ours, each pair measured in turn."""
    keep_freed_memory()
    operations_per_second = rate_of_products(dtype)
    print(machine())
    print(f"\n| network | px | plain, ms | ours, {dtype}, ms | ratio | lowest to highest | limit |")
    print("|---|---|---|---|---|---|---|")
    for architecture in architectures:
        for size in sizes:
            plain = plain_step(architecture, size, batch_size)
            ours = our_step(architecture, size, batch_size, dtype)
            try:
                with FlopCounterMode(display=False) as counter:
                    plain()
            except (RuntimeError, ValueError):  # the images are too small for the network
                continue
            ours()
            pairs = [(_ms_of(plain), _ms_of(ours)) for _ in range(repeats)]
            ratios = [plain_ms / our_ms for plain_ms, our_ms in pairs]
            plain_ms, our_ms = map(min, zip(*pairs, strict=True))
            limit_ms = 1e3 * counter.get_total_flops() / operations_per_second
            limit = f"{plain_ms / limit_ms:.1f}" if _is_ungrouped(architecture) else "-"
            print(
                f"| {architecture} | {size} | {plain_ms:.0f} | {our_ms:.0f} |"
                f" {plain_ms / our_ms:.2f} | {min(ratios):.2f} to {max(ratios):.2f} |"
                f" {limit} |",
                flush=True,
            )


def _is_ungrouped(architecture: str) -> bool:
    """Return whether PyTorch counts the operations right, which it does not of grouped filters."""
    layers = build(architecture, False, CATEGORIES).modules()
    return all(getattr(layer, "groups", 1) == 1 for layer in layers)


def plain_step(architecture: str, size: int, batch_size: int) -> Step:
    """Return a step as most scripts take it: float32, contiguous, SGD as PyTorch chooses."""
    network = build(architecture, False, CATEGORIES).train()
    optimizer = torch.optim.SGD(
        network.parameters(), 0.001, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    images = torch.rand(batch_size, 3, size, size)
    return _step(network, optimizer, images, torch.float32)


def our_step(architecture: str, size: int, batch_size: int, dtype: torch.dtype) -> Step:
    """Return a step as the program takes it."""
    network = build(architecture, False, CATEGORIES).train()
    adapt_to_cpu(network)
    network.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(network, delays_unmet=True)
    set_learning_rate(optimizer, 0.001)
    images = torch.rand(batch_size, 3, size, size).to(memory_format=torch.channels_last)
    return _step(network, optimizer, images, dtype)


def _step(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    dtype: torch.dtype,
) -> Step:
    targets = torch.arange(len(images)) % CATEGORIES

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = network(images)
        F.cross_entropy(logits.float(), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _ms_of(step: Step) -> float:
    """Return milliseconds of this process's time, of steps that take `MIN_S` together."""
    count, before_s = 0, time.process_time()
    while time.process_time() < before_s + MIN_S:
        step()
        count += 1
    return 1e3 * (time.process_time() - before_s) / count
