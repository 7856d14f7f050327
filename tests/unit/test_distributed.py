"""How the processes of a run connect."""

import socket

import pytest

from train_pytorch_model.distributed.world import World, join_world
from train_pytorch_model.words.errors import LostRankError


@pytest.mark.parametrize("local_rank", [0, 1])
def test_a_port_in_use_is_reported_at_once_by_one_process_of_a_host(
    local_rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "2"}
        for name, value in (meeting | {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": "2"}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(World, "failures", property(lambda _: pytest.fail("it must not wait for others")))
        with pytest.raises((LostRankError, SystemExit)) as raised, join_world():
            pass
    if local_rank == 0:
        message = str(raised.value)
        assert message.startswith(
            f"The 2 processes of the run could not meet at MASTER_ADDR:MASTER_PORT, 127.0.0.1:{port}: "
        )
        assert "address already in use" in message
    else:
        assert raised.value.args == (LostRankError.exit_status,)
