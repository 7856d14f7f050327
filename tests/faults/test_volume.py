"""Many kills at random moments: `pytest -m volume`; KILLS (20) is the number of processes killed.

The moments differ every time; FAULTS_SEED repeats them.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.trials import Bench, Result, result_of, run_folder_of

KILLS = int(os.environ.get("KILLS", "20"))
SEED = int(os.environ.get("FAULTS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


@pytest.mark.volume
@pytest.mark.timeout(0)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_many_random_kills_change_no_result(
    bench: Bench, undisturbed: Callable[[int], Result], tmp_path: Path, ranks: int
) -> None:
    """Each run is killed until it completes; none may differ, hang, fail otherwise, or leave files
    behind.
    """
    moments = random.Random(SEED + ranks)
    expected = undisturbed(ranks)
    output = tmp_path / "0" / "trained"
    started_at = time.monotonic()
    assert set(bench.train(output, ranks=ranks).statuses) == {0}
    longest_s = 1.2 * (time.monotonic() - started_at)
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        output = tmp_path / str(runs) / "trained"
        for attempt in range(1, 1000):
            job = bench.start(output, ranks=ranks, in_earnest=attempt % 2 == 0)
            time.sleep(moments.uniform(0, longest_s))
            with_signal = moments.choice(
                [signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]
            )
            killed = moments.choice(job.processes)
            is_killed = killed.is_alive()
            if is_killed:
                killed.send(with_signal)
                if ranks > 1:
                    job.end_as_a_launcher_would(grace_s=15.0)
            ended = job.wait()
            assert set(ended.statuses) <= {0, 4, 143, -9, -15}, (SEED, ended)
            assert "Traceback" not in ended.stderr, (SEED, ended.stderr)
            kills += is_killed
            if set(ended.statuses) == {0}:
                break
        assert result_of(output) == expected, (SEED, runs)
        assert not run_folder_of(output).exists()
    print(f"{ranks} ranks: {kills} kills, {runs} runs, 0 differences, seed {SEED}")
