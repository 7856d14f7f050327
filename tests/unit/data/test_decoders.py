"""Decoder processes: the same pixels, and faults that cost at most one image."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.faults import faulty_decoder
from tests.logs import warnings_in
from tests.painting import encode, paint

from train_pytorch_model.data import decoder_process
from train_pytorch_model.data.decoder_process import KEPT_BYTES
from train_pytorch_model.data.decoders import DecodeOnly, Decoders
from train_pytorch_model.data.requests import ImageRequest
from train_pytorch_model.image_classifier.colours import DEFAULT_COLOURS
from train_pytorch_model.image_classifier.decoding import (
    MAX_JPEG_PIXELS,
    MAX_PIXELS,
    UnreadableImageError,
)
from train_pytorch_model.image_classifier.pixels import decode_pixels
from train_pytorch_model.machine.liveness import start_of

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="decoder processes exist on Linux only"
)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Decoders]:
    monkeypatch.setattr(decoder_process, "serve", faulty_decoder.serve)
    these = Decoders()
    yield these
    these.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Decoders]:
    these = Decoders()
    yield these
    these.close()


def written(path: Path, content: bytes = encode(paint("red", 1))) -> Path:
    path.write_bytes(content)
    return path


def pids(these: Decoders) -> list[int]:
    return [decoder.pid for decoder in these._all]


def server_pid() -> int:
    pid: int = vars(forkserver)["_forkserver"]._forkserver_pid
    return pid


def no_process(*_: object) -> None:
    raise BlockingIOError("a limit on processes")


def resident(mapping: str) -> int:
    """Bytes of this process's mappings of that name that are in memory."""
    sizes, is_of_it = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            is_of_it = mapping in line
        elif is_of_it and line.startswith("Rss:"):
            sizes += int(line.split()[1]) << 10
    return sizes


@pytest.mark.parametrize(
    "name",
    ["plain.png", "two\nlines.png", os.fsdecode(b"caf\xe9.png"), "😀.png"],
    ids=["ASCII", "n", "bytes", "emoji"],
)
def test_pixels_equal_those_decoded_in_this_process(
    shared: Decoders, tmp_path: Path, name: str
) -> None:
    path = written(tmp_path / name)
    assert (shared.decode(path, 8) == decode_pixels(path, 8)).all()


def test_a_large_photograph_is_decoded_at_reduced_size(shared: Decoders, tmp_path: Path) -> None:
    path = written(tmp_path / "large.jpg", encode(paint("blue", 2, (640, 480)), "JPEG"))
    pixels = shared.decode(path, 40)
    assert pixels.shape == (60, 80, 3)
    assert (pixels == decode_pixels(path, 40)).all()


def test_the_memory_of_a_huge_image_is_released(shared: Decoders, tmp_path: Path) -> None:
    huge = Image.new("RGB", (KEPT_BYTES // 3, 2), "red")
    path = written(tmp_path / "huge.png", encode(huge))
    assert (shared.decode(path, 9999) == np.asarray(huge)).all()
    assert resident("memfd:pixels") == 0
    small = written(tmp_path / "small.png")
    assert (shared.decode(small, 99) == decode_pixels(small, 99)).all()
    assert 0 < resident("memfd:pixels") < KEPT_BYTES


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, r"^the file is gone$"), (b"no image", r"^not an image of a known format")],
)
def test_reasons_equal_those_of_decoding_in_this_process(
    shared: Decoders, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "a.png" if content is None else written(tmp_path / "a.png", content)
    before = pids(shared)
    with pytest.raises(UnreadableImageError, match=reason):
        shared.decode(path, 8)
    assert pids(shared) == before


def test_a_crash_costs_one_image_and_nothing_else(faulty: Decoders, tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match=r"^its decoder crashed \(SIGSEGV\)$"):
        faulty.decode(written(tmp_path / "crash.png"), 8)
    assert len(pids(faulty)) == 1  # which has shown that a good image can be decoded here
    good = written(tmp_path / "good.png")
    assert (faulty.decode(good, 8) == decode_pixels(good, 8)).all()


@pytest.mark.parametrize("name", ["killed", "paused"])
def test_an_image_whose_decoder_was_ended_once_is_retried(
    faulty: Decoders, tmp_path: Path, name: str
) -> None:
    path = written(tmp_path / f"{name}.png")
    assert (faulty.decode(path, 8) == decode_pixels(path, 8)).all()


def test_decoding_that_never_ends_is_stopped(faulty: Decoders, tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match=r"^its decoder was still computing after 60 s$"):
        faulty.decode(written(tmp_path / "spin.png"), 8)
    good = written(tmp_path / "good.png")
    assert (faulty.decode(good, 8) == decode_pixels(good, 8)).all()


def test_running_out_of_memory_costs_one_image(faulty: Decoders, tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match=r"^MemoryError$"):
        faulty.decode(written(tmp_path / "exhaust.png"), 8)
    assert len(pids(faulty)) == 1


@pytest.mark.parametrize("broken", ["ensure_running", "connect_to_new_process"])
def test_the_thread_decodes_if_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(forkserver, broken, no_process)
    these, path = Decoders(), written(tmp_path / "a.png")
    assert (these.decode(path, 8) == decode_pixels(path, 8)).all()
    assert pids(these) == []
    these.close()


def test_the_thread_decodes_if_processes_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_process, "serve", sys.exit)
    these, path = Decoders(), written(tmp_path / "a.png")
    assert (these.decode(path, 8) == decode_pixels(path, 8)).all()
    assert pids(these) == []


def test_images_are_not_blamed_where_no_process_can_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decoder_process, "serve", faulty_decoder.serve_nobody)
    these = Decoders()
    paths = [
        written(tmp_path / f"{number}.png", encode(paint("red", number))) for number in range(6)
    ]
    found = [these.decode(path, 8) for path in paths]
    assert all(
        (pixels == decode_pixels(path, 8)).all() for pixels, path in zip(found, paths, strict=True)
    )
    (warning,) = warnings_in(caplog)
    assert "cannot work here (its decoder crashed (status 0))" in warning
    these.close()


def test_an_image_that_crashed_its_decoder_is_not_decoded_in_this_process(
    faulty: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = written(tmp_path / "good.png")
    crashing = written(tmp_path / "crash.png")
    faulty.decode(good, 8)
    monkeypatch.setattr(forkserver, "connect_to_new_process", no_process)
    with pytest.raises(UnreadableImageError, match=r"^its decoder crashed \(SIGSEGV\)$"):
        faulty.decode(crashing, 8)
    assert (faulty.decode(good, 8) == decode_pixels(good, 8)).all()


def test_each_thread_has_one_decoder_and_all_are_ended(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / f"{number}.png", encode(paint("green", number))) for number in range(12)
    ]
    these = Decoders()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda path: these.decode(path, 8), paths))
    for pixels, path in zip(found, paths, strict=True):
        assert (pixels == decode_pixels(path, 8)).all()
    running = pids(these)
    assert len(running) in (1, 2)
    these.close()
    assert not [pid for pid in running if start_of(pid)]


def test_the_death_of_the_server_costs_no_image(tmp_path: Path) -> None:
    path, these = written(tmp_path / "a.png"), Decoders()
    these.decode(path, 8)
    os.kill(server_pid(), signal.SIGKILL)
    # By the process that it has forked before.
    assert (these.decode(path, 8) == decode_pixels(path, 8)).all()
    # By processes of another server.
    together = Barrier(4)

    def decode(_: int) -> NDArray[np.uint8]:
        together.wait()
        return these.decode(path, 8)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(decode, range(8)))
    assert all((pixels == decode_pixels(path, 8)).all() for pixels in found)
    assert len(pids(these)) > 1
    these.close()


def test_decoders_do_not_outlive_their_program(tmp_path: Path) -> None:
    path = written(tmp_path / "a.png")
    program = (
        "import os, signal; from pathlib import Path\n"
        "from train_pytorch_model.data.decoders import Decoders\n"
        f"d = Decoders(); d.decode(Path({str(path)!r}), 8); print(d._all[0].pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    pid = int(ended.stdout)
    while start_of(pid):  # the test's own time limit ends it
        time.sleep(0.01)


def test_a_decoder_whose_reply_is_not_read_exits_silently(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    these, path = Decoders(), written(tmp_path / "a.png")
    these.decode(path, 8)
    (decoder,) = these._all
    decoder._connection.send_bytes(
        pickle.dumps((DecodeOnly(8, DEFAULT_COLOURS), [ImageRequest(str(path))]))
    )
    decoder._connection.poll(None)
    assert decoder.end() == 0
    assert capfd.readouterr() == ("", "")


def test_the_largest_allowed_image_fits_the_shared_memory() -> None:
    assert 3 * max(MAX_JPEG_PIXELS, MAX_PIXELS) <= decoder_process.CAPACITY
