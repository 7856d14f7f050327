"""Hosts on one machine: network namespaces with addresses of their own, behind one switch."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "eth0"


class NoNamespacesError(Exception):
    """This machine does not let us make hosts; the text says why."""


@dataclass(frozen=True)
class Host:
    """A network namespace, whose name is the host's."""

    namespace: str
    address: str

    def start(
        self, command: Sequence[str | Path], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Run a command there, in a session of its own; what it says goes to the log."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace, "unshare", "--uts"),
                    *("sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"', self.namespace),
                    *map(str, command),
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    **environment,
                    # Their names lead nowhere.
                    "GLOO_SOCKET_IFNAME": INTERFACE,
                    "CUDA_VISIBLE_DEVICES": "",
                },
            )

    def cut(self) -> None:
        """Pull the plug."""
        _run("ip", "-n", self.namespace, "link", "set", INTERFACE, "down")

    def mend(self) -> None:
        """Put it back."""
        _run("ip", "-n", self.namespace, "link", "set", INTERFACE, "up")

    def processes(self) -> list[int]:
        """Those that run there."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self.namespace).split()]


@contextmanager
def make_hosts(number: int) -> Iterator[list[Host]]:
    """So many hosts that reach each other at 10.77.0.1, 10.77.0.2 and so on. Raises `NoNamespacesError`."""
    if sys.platform != "linux" or shutil.which("ip") is None or shutil.which("unshare") is None:
        raise NoNamespacesError("there are no `ip` and `unshare` commands here")
    prefix = f"tpm{os.getpid()}"
    switch = f"{prefix}s"
    hosts = [Host(f"{prefix}h{index}", f"10.77.0.{index}") for index in range(1, number + 1)]
    try:
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "switch", "up")
        for index, host in enumerate(hosts):
            plug = f"plug{index}"
            _run("ip", "netns", "add", host.namespace)
            _run(
                *("ip", "-n", switch, "link", "add", plug, "type", "veth"),
                *("peer", "name", INTERFACE, "netns", host.namespace),
            )
            _run("ip", "-n", switch, "link", "set", plug, "master", "switch", "up")
            _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", INTERFACE)
            _run("ip", "-n", host.namespace, "link", "set", INTERFACE, "up")
            _run("ip", "-n", host.namespace, "link", "set", "lo", "up")
        yield hosts
    finally:
        for namespace in (*(host.namespace for host in hosts), switch):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a host's processes, as when its power fails."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise NoNamespacesError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
