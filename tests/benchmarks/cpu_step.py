"""The training step on a CPU, its operations, and what it would reach if all were large matrix
products.

On one core by default. `--avx2` computes as a CPU without AVX512 and bfloat16. `--sizes` compares
ten networks with a plain script instead, on images of several sizes.
"""

import os
import time
from collections.abc import Callable, Mapping
from itertools import islice

from tests.benchmarks.timing import AVX2_ONLY, add_avx2, arguments, measure_in_turn, show

BATCH_SIZE = 16
STEPS = 3
PER_CPU_SECOND = "images per CPU second"
GROUPS = {
    "convolutions": ("convolution",),
    "batch norms": ("batch_norm",),
    "ReLU": ("threshold", "clamp", "relu"),
    "pooling": ("pool",),
}


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__, images=False)
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="time a compiled step as well")
    parser.add_argument("--sizes", type=int, nargs="*", help="in px, for a table of many networks")
    parser.add_argument("--architectures", nargs="+", help="of that table")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help="of that table")
    add_avx2(parser)
    chosen = parser.parse_args()
    if chosen.avx2:
        os.environ |= AVX2_ONLY  # before PyTorch is loaded
    import torch

    torch.set_num_threads(chosen.threads)
    dtype = torch.float32 if chosen.avx2 else torch.bfloat16
    if chosen.sizes is not None:
        from tests.benchmarks.step_sizes import ARCHITECTURES, SIZES, show_sizes

        names = chosen.architectures or ARCHITECTURES
        sizes = chosen.sizes or SIZES
        show_sizes(names, sizes, chosen.batch_size, dtype, chosen.repeats)
        return
    contiguous = make_step(chosen.architecture, chosen.image_size, False, torch.float32)
    ours = make_step(chosen.architecture, chosen.image_size, True, dtype)
    fine_tuned = make_step(chosen.architecture, chosen.image_size, True, dtype, is_fine_tuned=True)
    compiled = make_step(chosen.architecture, chosen.image_size, True, dtype, is_compiled=True)
    limit = rate_of_products(dtype) / operations_of(contiguous) * BATCH_SIZE
    show(
        measure_in_turn(
            {
                "float32, contiguous": lambda: rate_of(contiguous),
                f"{str(dtype).removeprefix('torch.')}, channels last": lambda: rate_of(ours),
                "the same, fine-tuned in up to ten epochs": lambda: rate_of(fine_tuned),
                **(
                    {"channels last, compiled": lambda: rate_of(compiled)} if chosen.compile else {}
                ),
                "if all were large matrix products": lambda: {PER_CPU_SECOND: limit},
            },
            chosen.repeats,
        )
    )
    print("\n| operations | share of the step |\n|---|---|")
    for group, share in shares_of(ours).items():
        print(f"| {group} | {share:.1%} |")


def make_step(
    architecture: str,
    size: int,
    channels_last: bool,
    dtype: object,
    is_fine_tuned: bool = False,
    is_compiled: bool = False,
) -> Callable[[], None]:
    """Return a training step on one random batch, with the program's loss and optimizer."""
    import torch
    import torchvision
    from torch.nn.functional import cross_entropy

    from train_pytorch_model.networks.batch_norms import freeze_statistics, set_training_mode
    from train_pytorch_model.networks.dry_runs import count_first_parameters
    from train_pytorch_model.training.fine_tuning import FROZEN_FRACTION

    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = (
        torchvision.models.get_model(architecture, num_classes=10).to(memory_format=layout).train()
    )
    if is_fine_tuned:
        for parameter in islice(
            network.parameters(), count_first_parameters(network, size, size, FROZEN_FRACTION)
        ):
            parameter.requires_grad_(False)
        freeze_statistics(network)
        set_training_mode(network)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.01, momentum=0.9, nesterov=True, fused=True)
    images = torch.rand(BATCH_SIZE, 3, size, size).to(memory_format=layout)
    targets = torch.randint(0, 10, (BATCH_SIZE,))
    is_mixed = dtype != torch.float32
    model = torch.compile(network, dynamic=False) if is_compiled else network

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
            logits = model(images)
        cross_entropy(logits.float(), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def rate_of(step: Callable[[], None]) -> Mapping[str, float]:
    """Return images per second, and per second of this process's time."""
    step()
    started_at, before_s = time.perf_counter(), time.process_time()
    for _ in range(STEPS):
        step()
    images = STEPS * BATCH_SIZE
    return {
        PER_CPU_SECOND: images / (time.process_time() - before_s),
        "images per second": images / (time.perf_counter() - started_at),
    }


def rate_of_products(dtype: object, side: int = 2048) -> float:
    """Return floating-point operations per second: the best of five products of large matrices."""
    import torch

    assert isinstance(dtype, torch.dtype)
    left, right = torch.rand(side, side).to(dtype), torch.rand(side, side).to(dtype)
    durations = []
    for _ in range(5):
        before_s = time.process_time()
        left @ right
        durations.append(time.process_time() - before_s)
    return 2 * side**3 / min(durations)


def operations_of(step: Callable[[], None]) -> float:
    """Return floating-point operations of the convolutions and matrix products of a step."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops())


def shares_of(step: Callable[[], None]) -> Mapping[str, float]:
    """Return the groups' shares of the time that a step's operations take themselves."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    times = {each.key: each.self_cpu_time_total for each in profiled.key_averages()}
    total = sum(times.values())
    shares = {
        group: sum(
            time for name, time in times.items() if any(part in name.lower() for part in parts)
        )
        / total
        for group, parts in GROUPS.items()
    }
    return {**shares, "everything else": 1 - sum(shares.values())}


if __name__ == "__main__":
    main()
