"""Downloads of torchvision's weights, from a local server."""

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from train_pytorch_model.errors import FailedToDownloadFilesError, ParameterError
from train_pytorch_model.networks import download

CONTENT = b"weights" * 1000
SHA256_START = hashlib.sha256(CONTENT).hexdigest()[:8]
ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT) + CONTENT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the weights in the cache."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "hub" / "checkpoints" / f"net-{SHA256_START}.pth"


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[tuple[Any, list[bytes]]]:
    """(Weights at its address, the requests that it has received)."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(4096))
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/models/net-{SHA256_START}.pth"
        try:
            yield SimpleNamespace(url=url, name="BEST"), asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_weights_are_downloaded_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(lambda connection: connection.sendall(ANSWER)) as (weights, asked):
        assert download.fetch(weights, is_shown=False) == cache
        assert download.fetch(weights, is_shown=False) == cache
    assert (cache.read_bytes(), len(asked)) == (CONTENT, 1)
    assert capsys.readouterr() == ("", "")


def test_a_damaged_file_in_the_cache_is_downloaded_again(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_bytes(CONTENT[:100])
    with server(lambda connection: connection.sendall(ANSWER)) as (weights, _):
        download.fetch(weights, is_shown=False)
    assert cache.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b"HTTP/1.0 404 Not Found\r\n\r\n", "HTTP Error 404: Not Found", id="an error"),
        pytest.param(b"no\r\n\r\n", r"\(no\) ", id="not HTTP"),
        pytest.param(ANSWER[:-10], "invalid hash value", id="half a file"),
        pytest.param(b"", "Remote end closed connection without response", id="an empty response"),
    ],
)
def test_a_download_that_fails_is_an_error_and_leaves_nothing(
    cache: Path, answer: bytes, reason: str
) -> None:
    with (
        server(lambda connection: connection.sendall(answer)) as (weights, _),
        pytest.raises(FailedToDownloadFilesError, match=reason),
    ):
        download.fetch(weights, is_shown=False)
    assert list(cache.parent.iterdir()) == []


def test_a_download_that_stalls_times_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SILENCE_S", 0.2)
    over = threading.Event()

    def stall(connection: socket.socket) -> None:
        connection.sendall(ANSWER[:-10])
        over.wait(60)

    with server(stall) as (weights, _):
        try:
            with pytest.raises(FailedToDownloadFilesError, match="timed out"):
                download.fetch(weights, is_shown=False)
        finally:
            over.set()
    assert socket.getdefaulttimeout() is None
    assert list(cache.parent.iterdir()) == []


def test_weights_may_be_given_by_torchvisions_full_name() -> None:
    best = download.named_weights("resnet50", "DEFAULT")
    assert download.named_weights("resnet50", "ResNet50_Weights.IMAGENET1K_V2") is best
    with pytest.raises(
        ParameterError, match=r"V3 is not known for a resnet50\. Known weights: IMAGE"
    ):
        download.named_weights("resnet50", "V3")
