"""Available memory, and freed memory that is kept for reuse."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from train_pytorch_model.machine.memory import available_memory

GIB = 1 << 30


def files(root: Path, **texts: str) -> Path:
    names = {
        "meminfo": "meminfo",
        "limit": "memory.max",
        "used": "memory.current",
        "stat": "memory.stat",
        "old_limit": "memory/memory.limit_in_bytes",
        "old_used": "memory/memory.usage_in_bytes",
        "old_stat": "memory/memory.stat",
    }
    for key, text in texts.items():
        path = root / names[key]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root


MACHINE = {"meminfo": f"MemTotal: 99 kB\nMemAvailable:  {8 << 20} kB\n"}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param({}, 8 * GIB, id="no cgroup"),
        pytest.param(
            {"limit": "max", "used": "5", "stat": "inactive_file 7"}, 8 * GIB, id="no limit"
        ),
        pytest.param(
            {
                "limit": str(3 * GIB),
                "used": str(2 * GIB),
                "stat": f"anon 1\ninactive_file {GIB // 2}\n",
            },
            GIB + GIB // 2,
            id="v2",
        ),
        pytest.param(
            {"limit": str(64 * GIB), "used": "0", "stat": "inactive_file 0"},
            8 * GIB,
            id="a higher limit",
        ),
        pytest.param(
            {"limit": str(GIB), "used": str(2 * GIB), "stat": "inactive_file 0"}, 0, id="all used"
        ),
        pytest.param(
            {"limit": str(GIB), "used": "0", "stat": "anon 1"}, 8 * GIB, id="incomplete v2"
        ),
        pytest.param(
            {
                "old_limit": str(2 * GIB),
                "old_used": str(GIB),
                "old_stat": "inactive_file 1\ntotal_inactive_file 5",
            },
            GIB + 5,
            id="v1",
        ),
    ],
)
def test_the_smaller_of_machine_and_container_counts(
    tmp_path: Path, texts: dict[str, str], expected: int
) -> None:
    root = files(tmp_path, **MACHINE, **texts)
    assert available_memory(proc=root, cgroup=root) == expected


@pytest.mark.parametrize(
    "meminfo", [None, "MemTotal: 5 kB\n", "MemAvailable: much kB\n", "MemAvailable:\n"]
)
def test_half_of_the_memory_counts_if_the_available_memory_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meminfo: str | None
) -> None:
    if meminfo is not None:
        files(tmp_path, meminfo=meminfo)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert available_memory(proc=tmp_path, cgroup=tmp_path) == 4096 * 500


def test_without_any_information_no_memory_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert available_memory(proc=tmp_path, cgroup=tmp_path) == 0


def test_this_machine_has_available_memory() -> None:
    assert available_memory() > 1 << 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is specific to glibc")
def test_freed_memory_is_kept_for_reuse() -> None:
    program = """
import resource
from train_pytorch_model.machine.memory import keep_freed_memory
def faults_of_ten_rounds():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        block = b"x" * (20 << 20)
        del block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
by_itself = faults_of_ten_rounds()
keep_freed_memory()
faults_of_ten_rounds()
print(by_itself, faults_of_ten_rounds())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    by_itself, kept = map(int, ended.stdout.split())
    assert kept < 100 < by_itself


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is specific to glibc")
def test_what_is_kept_between_other_blocks_is_released() -> None:
    program = """
from pathlib import Path
from train_pytorch_model.machine.memory import keep_freed_memory, release_freed_memory
def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20
keep_freed_memory()
large, small = [], []
for _ in range(500):
    large.append(b"x" * (100 << 10))
    small.append(b"x" * 1000)
del large
kept = resident_mib()
release_freed_memory()
print(kept - resident_mib())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(ended.stdout) > 40
