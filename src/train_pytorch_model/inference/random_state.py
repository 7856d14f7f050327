"""The random generators of the program that calls this one."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Leave the generators of Python, NumPy and PyTorch as they were, after a `with`.

    To build a network draws weights, even if others are loaded into it.
    """
    state = random.getstate()
    numpy_state = np.random.get_state()
    is_on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpus = range(torch.cuda.device_count()) if is_on_gpu else ()
    try:
        with torch.random.fork_rng(gpus):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
