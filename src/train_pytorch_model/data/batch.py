"""A batch of pixels on the device."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """One process's images of a step."""

    # (B, 3, H, W), uint8, channels last; or features (B, D) of a frozen backbone. B may be 0.
    images: Tensor
    # (B,), int64: class indices; or (B, C), float32: which categories the images have, after CutMix
    # as probabilities.
    targets: Tensor
    indices: np.ndarray  # (B,), int64: the images' indices in the dataset
    global_count: int  # images planned in this step over all processes
    unreadable: dict[
        int, str
    ]  # planned images that cannot be read, not in the batch: index → reason


def on_device(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """Yield the same batches on a device.

    A GPU receives each one while it still computes the previous one.
    """
    if device.type != "cuda":
        for batch in batches:
            yield replace(batch, images=batch.images.to(device), targets=batch.targets.to(device))
        return
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ahead: deque[tuple[Batch, torch.cuda.Event]] = deque()
    for batch in batches:
        with torch.cuda.stream(copying):
            images = batch.images.to(device, non_blocking=True)
            targets = batch.targets.pin_memory().to(device, non_blocking=True)
            copied = copying.record_event()
            ahead.append((replace(batch, images=images, targets=targets), copied))
        if len(ahead) > 1:
            yield _await_copy(*ahead.popleft())
    while ahead:
        yield _await_copy(*ahead.popleft())


def _await_copy(batch: Batch, copied: torch.cuda.Event) -> Batch:
    """Have the device wait until a batch is copied."""
    computing = torch.cuda.current_stream(batch.images.device)
    computing.wait_event(copied)  # the device waits, not this process
    for tensor in (batch.images, batch.targets):
        tensor.record_stream(computing)  # so that its memory is not reused too early
    return batch
