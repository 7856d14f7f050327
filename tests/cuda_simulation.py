"""CUDA graphs on a CPU: what a capture records is computed again by a replay, at the same
addresses.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A graph: records operations in a `with`, and computes them again when it is replayed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self.replays = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, found))
        return found

    def pool(self) -> tuple[int, int]:
        return (0, 0)

    @torch.no_grad()
    def replay(self) -> None:
        self.replays += 1
        for operation, given, options, found in self.operations:
            again = operation(*given, **options)
            for before, now in zip(tree_leaves(found), tree_leaves(again), strict=True):
                if (
                    isinstance(before, Tensor) and before.data_ptr() != now.data_ptr()
                ):  # not in place
                    before.copy_(now)


class Event:
    """Two of them are always a second apart."""

    def __init__(self, enable_timing: bool) -> None: ...

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: "Event") -> float:  # noqa: ARG002
        return 1e3


class Stream:
    """A stream with nothing to wait for."""

    def __init__(self, device: object = None) -> None: ...

    def wait_stream(self, other: "Stream") -> None: ...


def simulate_cuda(patch: pytest.MonkeyPatch, state: Callable[[], list[Tensor]]) -> None:
    """Replace what steps in CUDA graphs use.

    A capture leaves the tensors of `state` as they were.
    """

    @contextmanager
    def capture(graph: Recorded, *_: object, **__: object) -> Iterator[None]:
        before = [tensor.clone() for tensor in state()]
        with graph:
            yield
        with torch.no_grad():
            for tensor, value in zip(state(), before, strict=True):
                tensor.copy_(value)

    def on_stream(_: Stream) -> AbstractContextManager[None]:
        return nullcontext()

    for name, stand_in in {
        "CUDAGraph": Recorded,
        "graph": capture,
        "Event": Event,
        "Stream": Stream,
        "stream": on_stream,
        "current_stream": Stream,
        "synchronize": lambda _: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda _: (1 << 40, 1 << 40),
        "max_memory_allocated": lambda _: 0,
        "reset_peak_memory_stats": lambda _: None,
    }.items():
        patch.setattr(torch.cuda, name, stand_in)
