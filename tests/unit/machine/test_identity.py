"""What tells this machine from others."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from train_pytorch_model.machine import identity

PRINT = (
    "from train_pytorch_model.machine.identity import *; print(machine_id(), process_namespace())"
)


def test_processes_of_a_machine_have_its_identity() -> None:
    said = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, text=True, check=True)
    assert said.stdout == f"{identity.machine_id()} {identity.process_namespace()}\n"


def test_kernels_and_containers_of_one_host_name_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot_id").write_text("f00d\n")
    (tmp_path / "cgroup").symlink_to("cgroup:[1]")
    monkeypatch.setattr(identity, "BOOT_ID", tmp_path / "boot_id")
    monkeypatch.setattr(identity, "NAMESPACES", tmp_path)
    assert identity.machine_id() == f"{socket.gethostname()} f00d cgroup:[1]"


def test_a_system_that_does_not_say_has_a_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "BOOT_ID", tmp_path / "none")
    monkeypatch.setattr(identity, "NAMESPACES", tmp_path)
    assert identity.machine_id().split() == [socket.gethostname()]
    assert identity.kernel_id() == identity.process_namespace() == ""
