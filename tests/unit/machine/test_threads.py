"""The number of threads follows what other processes leave of the cores."""

import math
import os
import time
from pathlib import Path

import pytest
import torch

from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.distributed.world import World
from train_pytorch_model.machine import cores
from train_pytorch_model.machine.cores import CoreTimes
from train_pytorch_model.machine.threads import ONE_THREAD, Threads, choose_threads, fixed_threads
from train_pytorch_model.training import thread_watch
from train_pytorch_model.training.thread_watch import ThreadWatch

BEFORE = CoreTimes(at_s=100.0, total_s=1000.0, free_s=505.0)


def after(num_cores: int, seconds: float, others: float) -> CoreTimes:
    """The times after some seconds in which others used so many cores."""
    return CoreTimes(
        100 + seconds, 1000 + num_cores * seconds, 505 + (num_cores - others) * seconds
    )


@pytest.mark.parametrize(
    ("num_cores", "others", "expected"),
    [
        (2, 0.0, 2),
        (2, 0.4, 2),  # of no consequence, and other threads mean other bits
        (2, 1.0, 1),
        (2, 0.64, 1),  # what a busy process gets beside two threads
        (2, 1.9, 1),
        (8, 2.1, 6),
    ],
)
def test_a_core_that_others_use_gets_no_thread(
    num_cores: int, others: float, expected: int
) -> None:
    threads = choose_threads(num_cores, BEFORE, after(num_cores, 3.0, others))
    assert threads.count == expected
    reason = f"other processes use {others:.1f} of {num_cores} cores"
    assert threads.reason == ("one for each core" if expected == num_cores else reason)


def test_a_container_with_a_quota_counts_its_own_cores() -> None:
    """Of 64 processors that others use by half, a container may use two."""
    assert choose_threads(2, BEFORE, after(64, 3.0, others=32.0)).count == 2


@pytest.mark.parametrize(
    "now",
    [
        None,
        after(2, 0.5, others=2.0),
        CoreTimes(at_s=103.0, total_s=1000.0, free_s=506.0),
    ],
    ids=["not told", "too short", "a clock that stands still"],
)
def test_without_a_measurement_each_core_gets_a_thread(now: CoreTimes | None) -> None:
    assert choose_threads(2, BEFORE, now) == Threads(2, "one for each core")


def test_the_times_of_processors_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2}, raising=False)
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  999 0 0 999 0 0 0 0 0 0\n"
        "cpu0 100 50 50 300 20 10 10 60 7 0\n"
        "cpu1 999 0 0 999 0 0 0 0 0 0\n"
        "cpu2 100 0 0 100 0 0 0 0 0 0\n"
        "intr 12\n"
    )
    times = CoreTimes.now(stat)
    assert times
    per_s = os.sysconf("SC_CLK_TCK")
    assert times.total_s == pytest.approx(800 / per_s)
    assert times.free_s == pytest.approx(420 / per_s + sum(os.times()[:4]), abs=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "cpu0 1 0 0 1 0 0 0 0\n",
        "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n",
        "cpu0 x\ncpu1 1\n",
        None,
    ],
    ids=["other numbers", "zeros", "nonsense", "no such file"],
)
def test_a_system_that_does_not_tell_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert CoreTimes.now(tmp_path / "stat") is None


@pytest.mark.parametrize(("text", "expected"), [("3", 3), ("0", None), ("4,2", None), ("", None)])
def test_the_user_may_fix_the_number(text: str, expected: int | None) -> None:
    fixed = fixed_threads({"OMP_NUM_THREADS": text})
    assert fixed == (expected and Threads(expected, "as OMP_NUM_THREADS says", is_fixed=True))


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores, whose threads nobody has fixed."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("train_pytorch_model.machine.cores.usable_cores", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", set_threads)
    monkeypatch.setattr(torch, "get_num_threads", lambda: set_threads.count)


class _Threads:
    """Stands for the number of PyTorch's threads, which other tests share."""

    count = 0

    def __call__(self, count: int) -> None:
        self.count = count


set_threads = _Threads()


def tell(monkeypatch: pytest.MonkeyPatch, times: CoreTimes) -> None:
    monkeypatch.setattr(CoreTimes, "now", lambda: times)
    monkeypatch.setattr(time, "monotonic", lambda: times.at_s)


@pytest.mark.usefixtures("two_cores")
def test_a_run_beside_a_busy_process_begins_with_fewer_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "train_pytorch_model.distributed.rendezvous.best_device", lambda _: torch.device("cpu")
    )
    tell(monkeypatch, after(2, 3.0, others=1.0))
    with join_world(BEFORE) as world:
        assert world.threads == Threads(1, "other processes use 1.0 of 2 cores")
        assert set_threads.count == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with join_world(BEFORE) as world:
        assert world.threads.is_fixed
        assert set_threads.count == 2


@pytest.mark.usefixtures("two_cores")
def test_threads_follow_what_others_use_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    now = BEFORE
    tell(monkeypatch, now)
    set_threads(2)
    watch = ThreadWatch(
        World(0, 1, 0, 1, torch.device("cpu"), threads=Threads(2, "one for each core"))
    )

    def step(seconds: float, others: float) -> int:
        nonlocal now
        idle_s = max(0.0, 2 - others - set_threads.count) * seconds
        own_s = min(set_threads.count, 2 - others) * seconds
        now = CoreTimes(now.at_s + seconds, now.total_s + 2 * seconds, now.free_s + idle_s + own_s)
        tell(monkeypatch, now)
        watch.after_step()
        return set_threads.count

    assert [step(10, 0), step(10, 1), step(11, 0)] == [2, 2, 2]  # ten seconds are not long
    assert [step(20, 1), step(11, 1), step(31, 1)] == [2, 1, 1]
    assert [step(31, 0.2), step(31, 0.2)] == [2, 2]
    assert caplog.messages == [
        "From here on 1 thread: other processes use 1.0 of 2 cores.",
        "From here on 2 threads: one for each core.",
    ]


@pytest.mark.usefixtures("two_cores")
def test_a_fixed_number_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, BEFORE)
    set_threads(2)
    world = World(0, 1, 0, 1, torch.device("cpu"), threads=ONE_THREAD)
    watch = ThreadWatch(world)
    tell(monkeypatch, after(2, thread_watch.THREADS_EVERY_S + 1, others=1.0))
    watch.after_step()
    assert not world.use_threads(1)
    assert set_threads.count == 2


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(("recorded", "expected"), [(1, 1), (2, 2), (0, 7), (3, 7)])
def test_a_resumed_run_takes_the_recorded_number(recorded: int, expected: int) -> None:
    set_threads(7)
    world = World(0, 1, 0, 1, torch.device("cpu"), threads=Threads(2, "one for each core"))
    assert world.use_threads(recorded) is (expected == recorded)
    assert set_threads.count == expected


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/\n", {"": "200000 100000"}, 2.0),
        ("0::/job/step\n", {"job": "400000 100000", "job/step": "max 100000"}, 4.0),
        ("12:cpu:/x\n0::/job\n", {"": "300000 100000", "job": "600000 100000"}, 3.0),
        ("0::/docker/abc\n", {"": "200000 100000"}, 2.0),
        ("0::/job\n", {"job": "100000 0"}, math.inf),
    ],
    ids=[
        "container",
        "job of a scheduler",
        "the smallest counts",
        "seen from outside",
        "no period",
    ],
)
def test_quotas_of_all_groups_around_the_process_count(
    tmp_path: Path, membership: str, limits: dict[str, str], expected: float
) -> None:
    own = tmp_path / "membership"
    own.write_text(membership)
    for name, text in limits.items():
        group = tmp_path / "groups" / name
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpu.max").write_text(text)
    assert cores._cgroup_quota(tmp_path / "groups", own) == expected


def test_a_membership_that_cannot_be_read_is_that_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("300000 100000\n")
    (tmp_path / "membership").mkdir()
    assert cores._cgroup_quota(tmp_path, tmp_path / "membership") == 3


@pytest.mark.parametrize("quota", [2, 4])
def test_threads_of_a_container_follow_its_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: int
) -> None:
    """Of 16 processors, as in `docker run --cpus 2`."""
    (tmp_path / "cpu.max").write_text(f"{quota}00000 100000\n")
    read = cores._cgroup_quota
    monkeypatch.setattr(cores, "_cgroup_quota", lambda: read(tmp_path, tmp_path / "none"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    world = World(0, 1, 0, 1, torch.device("cpu"))
    assert choose_threads(world.cores, BEFORE, after(16, 3.0, others=4.0)).count == quota
