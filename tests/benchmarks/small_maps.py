"""Convolutions of small maps on a CPU: oneDNN and one matrix product, forward and backward.

`--avx2` computes as a CPU without AVX512 and bfloat16.
"""

import os
import time
from collections.abc import Mapping
from functools import partial

from tests.benchmarks.timing import AVX2_ONLY, Measure, add_avx2, arguments, measure_in_turn, show

BATCH_SIZE, MIN_S = 16, 0.1
# Input channels, filters, side of a filter, stride, side of the input.
SHAPES = (
    (128, 128, 3, 1, 8),
    (256, 256, 3, 1, 4),
    (512, 512, 3, 1, 2),
    (128, 128, 3, 1, 2),
    (64, 64, 3, 1, 2),
    (256, 512, 3, 2, 2),
    (512, 512, 3, 1, 1),
    (64, 64, 3, 1, 1),
    (2048, 512, 1, 1, 2),
    (96, 576, 1, 1, 2),
)
Shape = tuple[int, int, int, int, int]


def main() -> None:
    """Print milliseconds of CPU time of one thread, for each shape."""
    parser = arguments(__doc__, images=False)
    add_avx2(parser)
    chosen = parser.parse_args()
    if chosen.avx2:
        os.environ |= AVX2_ONLY  # before PyTorch is loaded
    import torch

    torch.set_num_threads(1)
    for is_bfloat16 in (False,) if chosen.avx2 else (False, True):
        for shape in SHAPES:
            show(measure_in_turn(ways(shape, is_bfloat16), chosen.repeats))


def ways(shape: Shape, is_bfloat16: bool) -> Mapping[str, Measure]:
    """Return the ways to compute a convolution."""
    return {
        "oneDNN, channels last": partial(_measure, shape, is_bfloat16, False, True),
        "oneDNN, contiguous": partial(_measure, shape, is_bfloat16, False, False),
        "one matrix product": partial(_measure, shape, is_bfloat16, True, True),
    }


def _measure(
    shape: Shape, is_bfloat16: bool, is_product: bool, is_channels_last: bool
) -> Mapping[str, float]:
    import torch

    from train_pytorch_model.networks import small_maps

    channels, filters, side, stride, length = shape
    layout = torch.channels_last if is_channels_last else torch.contiguous_format
    convolution = torch.nn.Conv2d(channels, filters, side, stride, side // 2, bias=False)
    convolution.to(memory_format=layout)
    if is_product:
        convolution.__class__ = small_maps.SmallMapConv2d
        small_maps.MAX_POSITIONS, small_maps.MIN_WEIGHTS = length**2, 1
    images = torch.randn(BATCH_SIZE, channels, length, length).to(memory_format=layout)
    images.requires_grad_()

    def passes() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
            output = convolution(images)
        output.backward(torch.ones_like(output))
        convolution.weight.grad = images.grad = None

    passes()
    count, before_s = 0, time.process_time()
    while time.process_time() < before_s + MIN_S:
        passes()
        count += 1
    each_ms = 1e3 * (time.process_time() - before_s) / count
    name = "bfloat16" if is_bfloat16 else "float32"
    kernel = f"{channels} → {filters}, {side} x {side}, stride {stride}, {length} px, {name}"
    return {f"{kernel}: ms": each_ms}


if __name__ == "__main__":
    main()
