"""Numbers on a GPU, read without stalling it: a step later, when they have been computed anyway."""

from collections.abc import Callable

import torch
from torch import Tensor


def read_later(values: Tensor) -> Callable[[], list[float]]:
    """Start copying values to the host, and return a function that returns them.

    On a GPU it waits until they are copied: called a step later, it does not wait.
    """
    if values.device.type != "cuda":
        numbers: list[float] = values.flatten().tolist()
        return lambda: numbers
    on_host = torch.empty(values.numel(), dtype=values.dtype, pin_memory=True)
    on_host.copy_(values.flatten(), non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait_and_read() -> list[float]:
        copied.synchronize()
        numbers: list[float] = on_host.tolist()
        return numbers

    return wait_and_read
