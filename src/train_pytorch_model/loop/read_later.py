"""Numbers of a device, read without a wait for it."""

from collections.abc import Callable

import torch
from torch import Tensor


def read_later(values: Tensor) -> Callable[[], list[float]]:
    """Call the result for the values as they are now; a step later, that does not wait for the GPU.

    On a CPU they are read at once.
    """
    if values.device.type != "cuda":
        read: list[float] = values.flatten().tolist()
        return lambda: read
    copy = torch.empty(values.numel(), dtype=values.dtype, pin_memory=True)
    copy.copy_(values.flatten(), non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait() -> list[float]:
        copied.synchronize()
        found: list[float] = copy.tolist()
        return found

    return wait
