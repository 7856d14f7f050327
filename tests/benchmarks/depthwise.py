"""Training steps of depthwise networks on a CPU: float32, bfloat16, and bfloat16 except depthwise
filters.
"""

import time
from collections.abc import Mapping

import torch
import torch.nn.functional as F

from tests.benchmarks.timing import Measure, arguments, measure_in_turn, show
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.networks.cpu_convolutions import adapt_to_cpu
from train_pytorch_model.training.optimizer import make_optimizer

SIZE, BATCH_SIZE, STEPS = 224, 16, 3
ARCHITECTURES = ("mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny")


def main() -> None:
    """Print images per second of each way."""
    parser = arguments(__doc__, images=False)
    parser.add_argument("--architectures", nargs="+", default=ARCHITECTURES)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    for architecture in chosen.architectures:
        show(measure_in_turn(_ways(architecture), chosen.repeats))


def _ways(architecture: str) -> Mapping[str, Measure]:
    images = torch.randn(BATCH_SIZE, 3, SIZE, SIZE).to(memory_format=torch.channels_last)
    targets = torch.arange(BATCH_SIZE) % 10

    def way(is_bfloat16: bool, is_adapted: bool) -> Measure:
        network = build(architecture, False, 10)
        if is_adapted:
            adapt_to_cpu(network)
        network.to(memory_format=torch.channels_last)
        optimizer = make_optimizer(network)

        def step() -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
                logits = network(images)
            F.cross_entropy(logits.float(), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

        def measure() -> Mapping[str, float]:
            step()
            started_at = time.perf_counter()
            for _ in range(STEPS):
                step()
            return {
                f"{architecture}, images/s": STEPS * BATCH_SIZE / (time.perf_counter() - started_at)
            }

        return measure

    return {
        "float32": way(is_bfloat16=False, is_adapted=False),
        "bfloat16": way(is_bfloat16=True, is_adapted=False),
        "bfloat16, but depthwise convolutions": way(is_bfloat16=True, is_adapted=True),
    }


if __name__ == "__main__":
    main()
