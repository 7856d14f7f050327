"""The number of CPU cores that a process may use, and how its threads take turns."""

import math
import os
import sys
from pathlib import Path

import pytest

from train_pytorch_model.machine import cores
from train_pytorch_model.machine.cores import _cgroup_quota, usable_cores
from train_pytorch_model.machine.threads import SWITCH_S, short_switch_interval


def cgroup(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = (
            root
            / {"v2": "cpu.max", "quota": "cpu/cpu.cfs_quota_us", "period": "cpu/cpu.cfs_period_us"}[
                name
            ]
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"v2": "max 100000\n"}, math.inf, id="v2 without a limit"),
        pytest.param({"v2": "150000 100000\n"}, 1.5, id="v2"),
        pytest.param({"quota": "200000\n", "period": "100000\n"}, 2.0, id="v1"),
        pytest.param({"quota": "-1\n", "period": "100000\n"}, math.inf, id="v1 without a limit"),
        pytest.param({"quota": "5000\n", "period": "0\n"}, math.inf, id="v1 without a period"),
        pytest.param({"quota": "5000\n"}, math.inf, id="half of v1"),
        pytest.param(
            {"v2": "nonsense", "quota": "300000", "period": "100000"},
            3.0,
            id="v1 after a broken v2",
        ),
        pytest.param({}, math.inf, id="no cgroup"),
    ],
)
def test_the_quota_of_a_container_is_read(
    tmp_path: Path, files: dict[str, str], expected: float
) -> None:
    assert _cgroup_quota(cgroup(tmp_path, **files)) == expected


@pytest.mark.parametrize(
    ("processors", "quota", "expected"),
    [(8, math.inf, 8), (8, 1.5, 2), (8, 0.1, 1), (2, 64.0, 2), (1, math.inf, 1)],
)
def test_the_smaller_of_mask_and_quota_counts(
    monkeypatch: pytest.MonkeyPatch, processors: int, quota: float, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    monkeypatch.setattr(cores, "_cgroup_quota", lambda: quota)
    assert usable_cores() == expected


def test_without_affinity_masks_all_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(cores, "_cgroup_quota", lambda: math.inf)
    assert usable_cores() == 6


def test_the_switch_interval_is_shortened_temporarily() -> None:
    before = sys.getswitchinterval()
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S, rel=0.01)
    assert sys.getswitchinterval() == before
