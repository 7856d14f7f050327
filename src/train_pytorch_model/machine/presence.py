"""Whether processes on other hosts are alive: each listens on its own port, and answers with its own word."""

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address

ANSWER_S = 2.0  # on a network that works, an answer takes milliseconds


@dataclass(frozen=True)
class Presence:
    """Where a process listens, and what it answers: the port may be another process's by now."""

    host: str
    port: int
    word: str

    @property
    def failure(self) -> str:
        """Why the process does not answer now; empty if it does."""
        try:
            connection = socket.create_connection((self.host, self.port), ANSWER_S)
        except ConnectionRefusedError:  # by its host
            return "has ended"
        except OSError:
            return "cannot be reached"
        with connection:
            try:
                said = connection.recv(len(self.word))
            except TimeoutError:  # its system has accepted the connection
                return "does not answer"
            except OSError:
                return "has ended"
        return "" if said == self.word.encode("ascii") else "has ended"


@contextmanager
def listening(meeting_point: str) -> Iterator[Presence]:
    """Answer that this process is alive to anyone who connects, for a `with`.

    It listens on the address from which it reaches the `meeting_point` of all processes.
    """
    family, address = _own_address(meeting_point)
    word = secrets.token_hex(8)
    # The meeting point may resolve its own name to a loopback address, which others cannot reach.
    is_loopback = ip_address(address).is_loopback
    with socket.create_server(("" if is_loopback else address, 0), family=family) as server:
        threading.Thread(target=_answer, args=(server, word), daemon=True, name="presence").start()
        try:
            yield Presence(meeting_point if is_loopback else address, server.getsockname()[1], word)
        finally:
            server.shutdown(socket.SHUT_RDWR)  # else the thread would keep waiting, and the port stay open


def _own_address(meeting_point: str) -> tuple[socket.AddressFamily, str]:
    family, _, _, _, address = socket.getaddrinfo(meeting_point, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as route:
        route.connect(address)  # sends nothing
        return family, str(route.getsockname()[0])


def _answer(server: socket.socket, word: str) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # the server was shut down
            return
        with connection, suppress(OSError):  # the client may be gone
            connection.send(word.encode("ascii"))
