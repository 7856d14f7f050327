"""The precision of training and validation."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.amp import GradScaler

BFLOAT16_CAPABILITY = (8, 0)  # Ampere; before it, bfloat16 is emulated
FLOAT16_CAPABILITY = (7, 0)  # Volta; before it, float16 gains no speed


@dataclass(frozen=True)
class Precision:
    """A floating-point format and why it was chosen."""

    dtype: torch.dtype
    reason: str

    def autocast(self, device: torch.device) -> AbstractContextManager[None]:
        """The autocast context of a forward pass; does nothing for float32."""
        is_exact = self.dtype == torch.float32
        return nullcontext() if is_exact else torch.autocast(device.type, dtype=self.dtype)

    def scaler(self, device: torch.device) -> GradScaler:
        """A loss scaler for float16, else disabled; never waits: fused optimizers skip steps
        themselves.
        """
        return GradScaler(device.type, enabled=self.dtype == torch.float16)

    @property
    def name(self) -> str:
        """The name of the dtype, such as `bfloat16`."""
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def choose_precision(requested: str, device: torch.device) -> Precision:
    """The recipe's precision; for `auto`, bfloat16 if the hardware supports it, else float16 or
    float32.
    """
    if requested != "auto":
        return Precision(getattr(torch, requested), "the recipe says so")
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        capability = torch.cuda.get_device_capability(device)
        if capability >= BFLOAT16_CAPABILITY:
            return Precision(torch.bfloat16, f"{name} computes it in hardware")
        if capability >= FLOAT16_CAPABILITY:
            return Precision(torch.float16, f"{name} computes it in hardware, but not bfloat16")
        return Precision(torch.float32, f"{name} has neither bfloat16 nor float16")
    if device.type != "cpu":
        return Precision(torch.float32, f"others are not measured on {device.type}")
    if _cpu_has_bfloat16():
        return Precision(torch.bfloat16, "this CPU computes it in hardware")
    return Precision(torch.float32, "this CPU has no bfloat16")


def _cpu_has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    try:
        with cpuinfo.open() as file:
            flags = next(line for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        return False
    return not {"amx_bf16", "avx512_bf16"}.isdisjoint(flags.split())
