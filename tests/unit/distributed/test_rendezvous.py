"""How the processes of a run connect."""

import errno
import re
import socket
from datetime import timedelta

import pytest
from tests.ports import free_port

from train_pytorch_model.distributed import rendezvous, waiting
from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import LostRankError


@pytest.mark.parametrize("local_rank", [0, 1])
def test_a_port_in_use_is_reported_at_once_by_one_process_of_a_host(
    local_rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "2"}
        for name, value in (
            meeting | {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": "2"}
        ).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(
            World, "failures", property(lambda _: pytest.fail("it must not wait for others"))
        )
        with pytest.raises((LostRankError, SystemExit)) as raised, join_world():
            pass
    if local_rank == 0:
        message = str(raised.value)
        assert message.startswith(
            "The 2 processes of the run could not meet at MASTER_ADDR:MASTER_PORT,"
            f" 127.0.0.1:{port}: "
        )
        assert "address already in use" in message
    else:
        assert raised.value.args == (LostRankError.exit_status,)


def test_a_rank_started_by_hand_says_what_it_waits_for_and_ends_with_one_message(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port = str(free_port())
    meeting_at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "1", "WORLD_SIZE": "2"}
    for name, value in (meeting_at | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(waiting, "SILENT_S", 0.0)
    monkeypatch.setattr(waiting, "RETRY_S", 0.01)
    monkeypatch.setattr(rendezvous, "TIMEOUT", timedelta(seconds=0.2))
    with (
        pytest.raises(LostRankError, match=f"could not meet .* 127.0.0.1:{port}: .*refused"),
        join_world(),
    ):
        pass
    refused = rf"Waiting for rank 0 at 127.0.0.1:{port}: \[Errno {errno.ECONNREFUSED}\] .*\.\n"
    assert re.fullmatch(refused, capfd.readouterr().err)


def test_a_machine_that_cannot_reach_itself_is_named_before_torch_tries(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    meeting_at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": "0", "WORLD_SIZE": "2"}
    for name, value in (meeting_at | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "create_connection", fail)
    with (
        pytest.raises(LostRankError, match=r"could not meet .*Network is unreachable"),
        join_world(),
    ):
        pass
    assert capfd.readouterr().err == ""
