"""The program by the clock of its CPU time, as on a quiet machine of one core.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.accuracy.by_cpu_time fit DIR --minutes 3 …

So a race can be measured beside other programs: the minutes are those of its own computation.
"""

import time
from unittest.mock import patch


def main() -> None:
    """Run the verb on the command line."""
    cpu_s = time.process_time
    with patch.multiple(time, monotonic=cpu_s, perf_counter=cpu_s):
        from train_pytorch_model.__main__ import console_script

        console_script()


if __name__ == "__main__":
    main()
