"""`deterministic`: the same bits in every run on the same hardware, at the cost of speed.

On a GPU, cuDNN and PyTorch add numbers in whichever order their threads arrive, cuBLAS splits
products by the memory that it finds, and a run times its own steps to choose how it averages and
compiles. All of that is fixed for a `with`; what has no fixed order is refused. On a CPU, only the
number of threads decides about bits, and it is fixed as well: `World.with_fixed_threads`.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from train_pytorch_model.config.wording import quoted
from train_pytorch_model.errors import ParameterError

# Buffers of a fixed size: cuBLAS reads it when it is first used in a process.
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED_WORKSPACE = ":4096:8"
FIXED_WORKSPACES = (FIXED_WORKSPACE, ":16:8")  # with others, PyTorch refuses to multiply
_MEMORY: Any = torch.utils.deterministic  # a module whose attribute is a property
_NOT_POSSIBLE = "does not have a deterministic implementation"


def deterministic_if(is_wanted: bool) -> AbstractContextManager[None]:
    """Return what makes the computations in a `with` deterministic, if that is wanted."""
    return deterministic() if is_wanted else nullcontext()


@contextmanager
def deterministic() -> Iterator[None]:
    """Compute the same bits each time, for a `with`.

    Raises `ParameterError` for a network that computes something for which there is no such way.
    """
    earlier_workspace = os.environ.get(WORKSPACE)
    is_fixed = earlier_workspace in FIXED_WORKSPACES
    earlier = _Settings.read()
    if not is_fixed:
        _use_workspace(FIXED_WORKSPACE)
    try:
        # Memory that is read before it is written would be a fault, and filling it takes time.
        _Settings(is_on=True, only_warns=False, fills=False, benchmarks=False, cudnn=True).apply()
        yield
    except RuntimeError as error:
        if _NOT_POSSIBLE not in str(error):
            raise
        operation = str(error).partition(" " + _NOT_POSSIBLE)[0]
        name = quoted("deterministic", "init-model")
        raise ParameterError(
            f"{name} is not possible with this network: PyTorch has no {operation} that adds in a"
            " fixed order. Leave it out, or name another architecture."
        ) from error
    finally:
        earlier.apply()
        if not is_fixed:
            _use_workspace(earlier_workspace)


def _use_workspace(config: str | None) -> None:
    """Have cuBLAS use such workspaces; None stands for its own choice.

    Earlier ones are freed, as a notebook may have computed on the GPU already.
    """
    if config is None:
        os.environ.pop(WORKSPACE, None)
    else:
        os.environ[WORKSPACE] = config
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch._C._cuda_clearCublasWorkspaces()


@dataclass(frozen=True)
class _Settings:
    """PyTorch's global settings of determinism."""

    is_on: bool
    only_warns: bool
    fills: bool
    benchmarks: bool
    cudnn: bool

    @classmethod
    def read(cls) -> "_Settings":
        return cls(
            is_on=torch.are_deterministic_algorithms_enabled(),
            only_warns=torch.is_deterministic_algorithms_warn_only_enabled(),
            fills=_MEMORY.fill_uninitialized_memory,
            benchmarks=torch.backends.cudnn.benchmark,
            cudnn=torch.backends.cudnn.deterministic,
        )

    def apply(self) -> None:
        torch.use_deterministic_algorithms(self.is_on, warn_only=self.only_warns)
        _MEMORY.fill_uninitialized_memory = self.fills
        torch.backends.cudnn.benchmark = self.benchmarks
        torch.backends.cudnn.deterministic = self.cudnn
