"""The clock of contenders: CPU time, of which reading images takes a part in other processes."""

import os
import time


def cpu_s() -> float:
    """Return what this process has computed, and those that it has ended, in seconds."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system
