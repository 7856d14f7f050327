"""The device to compute on: CUDA, Intel's xpu or Apple's mps, where PyTorch finds one, else the CPU."""

import torch

ACCELERATORS = ("cuda", "xpu", "mps")


def best_device(local_rank: int = 0) -> torch.device:
    """The device of this machine's process of that number; only GPUs of CUDA come in numbers here."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type not in ACCELERATORS:
        return torch.device("cpu")
    return torch.device("cuda", local_rank) if accelerator.type == "cuda" else accelerator


def exact_device(device: torch.device) -> torch.device:
    """Where sums in float64 are kept: mps has no float64."""
    return torch.device("cpu") if device.type == "mps" else device
