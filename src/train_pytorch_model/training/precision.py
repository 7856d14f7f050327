"""The precision of training and validation."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.amp import GradScaler

from train_pytorch_model.machine.cpu_features import cpu_has_bfloat16

BFLOAT16_CAPABILITY = (8, 0)  # Ampere; before it, bfloat16 is emulated
FLOAT16_CAPABILITY = (7, 0)  # Volta; before it, float16 gains no speed


@dataclass(frozen=True)
class Precision:
    """A floating-point format and why it was chosen."""

    dtype: torch.dtype
    reason: str

    def autocast(self, device: torch.device) -> AbstractContextManager[None]:
        """Return the autocast context of a forward pass; for float32, one that does nothing."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self.dtype)

    def scaler(self, device: torch.device) -> GradScaler:
        """Return the scaler of the loss, which is disabled unless the precision is float16.

        It never waits for the device: fused optimizers skip steps themselves.
        """
        return GradScaler(device.type, enabled=self.dtype == torch.float16)

    @property
    def name(self) -> str:
        """Return the name of the dtype, such as `bfloat16`."""
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def choose_precision(requested: str, device: torch.device) -> Precision:
    """Return the recipe's precision; for `auto`, the fastest that the hardware computes.

    That is bfloat16, else on a GPU float16, else float32.
    """
    if requested != "auto":
        return Precision(getattr(torch, requested), "the recipe says so")
    if device.type == "cuda":
        return _precision_of_gpu(device)
    if device.type != "cpu":
        return Precision(torch.float32, f"others are not measured on {device.type}")
    if cpu_has_bfloat16():
        return Precision(torch.bfloat16, "this CPU computes it in hardware")
    return Precision(torch.float32, "this CPU has no bfloat16")


def _precision_of_gpu(device: torch.device) -> Precision:
    name = torch.cuda.get_device_name(device)
    capability = torch.cuda.get_device_capability(device)
    if capability >= BFLOAT16_CAPABILITY:
        return Precision(torch.bfloat16, f"{name} computes it in hardware")
    if capability >= FLOAT16_CAPABILITY:
        return Precision(torch.float16, f"{name} computes it in hardware, but not bfloat16")
    return Precision(torch.float32, f"{name} has neither bfloat16 nor float16")
