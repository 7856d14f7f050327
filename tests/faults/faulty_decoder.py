"""A decoder with faults chosen by file name: crash, hang, be killed, exhaust memory."""

import os
import signal
import sys
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path

from PIL import Image

from train_pytorch_model.data import decoder_process
from train_pytorch_model.data.cache import SharedCache
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.colours import Colours

ONCE = {"killed": signal.SIGKILL, "paused": signal.SIGXCPU}  # a pause can count as computing
right = decoding.decode


def decode(file: str, short_side: int, colours: Colours) -> Image.Image:
    """Fail as the name says, otherwise decode the image."""
    name = Path(file).stem
    if "crash" in name:
        os.kill(os.getpid(), signal.SIGSEGV)
    for word, number in ONCE.items():
        if word in name and not Path(f"{file}.{word}").exists():
            Path(f"{file}.{word}").touch()
            os.kill(os.getpid(), number)
    while "spin" in name:
        pass
    if "exhaust" in name:
        bytearray(2 * decoder_process.MEMORY)
    return right(file, short_side, colours)


def serve_nobody(connection: Connection, *_: object) -> None:
    """Replace `decoder_process.serve` where a process starts, but ends at each request."""
    reduction.recv_handle(connection)
    connection.send_bytes(b"ready")
    connection.recv_bytes()


def serve(connection: Connection, folder: Path, cache: SharedCache | None, writer: int) -> None:
    """Replace `decoder_process.serve`."""
    vars(decoding).update(decode=decode)  # for modules imported later
    if pixels := sys.modules.get("train_pytorch_model.image_classifier.pixels"):
        vars(pixels).update(decode=decode)
    vars(decoder_process).update(COMPUTING_S=1)  # 0 may be rounded to a hundredth of 1 s
    decoder_process.serve(connection, folder, cache, writer)
