"""Simulated hosts on one machine: network namespaces with addresses, behind one switch."""

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
    """Hosts cannot be created on this machine; the message says why."""


@dataclass(frozen=True)
class Host:
    """A network namespace; its name is also the host name."""

    namespace: str
    address: str

    def start(
        self, command: Sequence[str | Path], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Run a command on the host, in its own session; its output goes to the log."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace, "unshare", "--uts"),
                    *(
                        "sh",
                        "-c",
                        'echo "$0" > /proc/sys/kernel/hostname && exec "$@"',
                        self.namespace,
                    ),
                    *map(str, command),
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    **environment,
                    # The host names do not resolve, so gloo cannot find the interface by them.
                    "GLOO_SOCKET_IFNAME": INTERFACE,
                    "CUDA_VISIBLE_DEVICES": "",
                },
            )

    def cut(self) -> None:
        """Disconnect the host from the network."""
        _run("ip", "-n", self.namespace, "link", "set", INTERFACE, "down")

    def mend(self) -> None:
        """Connect the host to the network again."""
        _run("ip", "-n", self.namespace, "link", "set", INTERFACE, "up")

    def processes(self) -> list[int]:
        """The ids of the processes running on the host."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self.namespace).split()]


@contextmanager
def make_hosts(number: int) -> Iterator[list[Host]]:
    """Create hosts that reach each other at 10.77.0.1, 10.77.0.2 and so on.

    Raises `NoNamespacesError`.
    """
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
            _run(
                "ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", INTERFACE
            )
            _run("ip", "-n", host.namespace, "link", "set", INTERFACE, "up")
            _run("ip", "-n", host.namespace, "link", "set", "lo", "up")
        yield hosts
    finally:
        for namespace in (*(host.namespace for host in hosts), switch):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a host's processes, as a power failure does."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise NoNamespacesError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
