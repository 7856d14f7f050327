"""Waiting for another process."""

import socket
import threading

import pytest
from tests.ports import free_port

from train_pytorch_model.config.wording import for_command_line, parameter
from train_pytorch_model.distributed import waiting
from train_pytorch_model.distributed.waiting import in_thread, wait_aloud, wait_for_answer
from train_pytorch_model.machine.console import logger


def test_a_rank_waits_until_the_first_one_listens() -> None:
    port = free_port()
    thread = threading.Thread(target=wait_for_answer, args=("127.0.0.1", port, 60.0), daemon=True)
    thread.start()
    with socket.create_server(("127.0.0.1", port)):
        thread.join(60)
    assert not thread.is_alive()


def test_waiting_for_the_others_is_said_and_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.0)
    monkeypatch.setattr(logger, "propagate", True)
    over = threading.Event()
    threading.Timer(0.2, over.set).start()
    assert wait_aloud(lambda: over.wait(60), "Waiting for the other process.")
    assert caplog.messages == ["Waiting for the other process."]
    with pytest.raises(ZeroDivisionError):
        wait_aloud(lambda: 1 // 0, "")


def test_a_call_in_a_thread_words_its_messages_as_its_caller() -> None:
    assert in_thread(lambda: parameter("epochs")).result(60) == "--epochs"
    with for_command_line(False):
        assert in_thread(lambda: parameter("epochs")).result(60) == "`epochs`"
