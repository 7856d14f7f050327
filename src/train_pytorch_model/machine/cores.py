"""How many processors this process may use."""

import math
import os
from pathlib import Path


def usable_cores() -> int:
    """Return the number of processors in the affinity mask, limited by the cgroup's quota; at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity mask
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _cgroup_quota())))


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many processors the container may use; infinite without a limit (cgroup v2, then v1)."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu/cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
