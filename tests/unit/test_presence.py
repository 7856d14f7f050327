"""Whether processes on other hosts are alive, and what each failure means."""

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from train_pytorch_model.machine import presence
from train_pytorch_model.machine.presence import Presence, listening

LOCALHOST = "127.0.0.1"


@pytest.fixture
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "ANSWER_S", 0.2)


@pytest.fixture
def there() -> Iterator[Presence]:
    """The presence of this process."""
    with listening(LOCALHOST) as own:
        yield own


def test_a_living_process_answers_every_time(there: Presence) -> None:
    assert [there.failure for _ in range(3)] == ["", "", ""]


def test_clients_that_reset_the_connection_do_not_affect_others(there: Presence) -> None:
    for _ in range(10):
        with socket.create_connection((there.host, there.port)) as connection:
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )  # reset, not closed
    assert there.failure == ""


def test_a_process_that_no_longer_listens_has_ended() -> None:
    with listening(LOCALHOST) as own:
        pass
    assert own.failure == "has ended"


def test_another_process_on_the_same_port_is_not_mistaken_for_it(there: Presence) -> None:
    assert replace(there, word="0" * len(there.word)).failure == "has ended"


@pytest.mark.usefixtures("_short_timeout")
def test_a_process_that_is_stopped_does_not_answer() -> None:
    """Its operating system accepts the connection."""
    with socket.create_server((LOCALHOST, 0)) as silent:
        assert Presence(LOCALHOST, silent.getsockname()[1], "word").failure == "does not answer"


@pytest.mark.usefixtures("_short_timeout")
def test_a_host_that_accepts_no_connection_cannot_be_reached() -> None:
    with socket.create_server((LOCALHOST, 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex((LOCALHOST, port))  # more than the backlog holds
        assert Presence(LOCALHOST, port, "word").failure == "cannot be reached"
        for each in waiting:
            each.close()


def test_a_meeting_point_on_this_host_is_announced_as_given(there: Presence) -> None:
    """By the name that was given: it may resolve to a loopback address only on this host."""
    assert there.host == LOCALHOST
    with listening("localhost") as named:
        assert named.host == "localhost"
        assert named.failure == ""
