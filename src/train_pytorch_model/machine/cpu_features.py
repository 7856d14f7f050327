"""What the processor's hardware can compute."""

from pathlib import Path

BFLOAT16_FLAGS = ("amx_bf16", "avx512_bf16")


def cpu_has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU computes bfloat16 in hardware; False where Linux does not say so."""
    try:
        with cpuinfo.open() as file:
            flags = next(line for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        return False
    return not set(BFLOAT16_FLAGS).isdisjoint(flags.split())
