"""A decoder with faults chosen by file name: crash, hang, be killed, exhaust memory, send invalid replies."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model.data import decoder_process
from train_pytorch_model.image_classifier import decoding

right, right_answers = decoding.drafted, decoder_process._answers


def drafted(file: str, short_side: int) -> Image.Image:
    """Fail as the name says, otherwise decode the image."""
    name = Path(file).stem
    if "crash" in name:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "killed once" in name and not Path(f"{file}.killed").exists():
        Path(f"{file}.killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while "spin" in name:
        pass
    if "exhaust" in name:
        bytearray(decoder_process.MEMORY)
    return right(file, short_side)


def answers(
    prepare: decoder_process.Prepare,
    requests: Sequence[decoder_process.ImageRequest],
    remember: object,
    memory: np.ndarray,
) -> Iterator[bytes]:
    """Reply with impossible sizes if a name says so, otherwise correctly."""
    names = [Path(one.file).stem for one in requests]
    if "too large" in names:
        yield decoder_process.REPLY.pack(1 << 20, 1 << 20)
    if "too long a reason" in names:
        yield decoder_process.REPLY.pack(0, 1 << 31)
    yield from right_answers(prepare, requests, remember, memory)


def main() -> None:
    """Replace `decoder_process.main`."""
    vars(decoding).update(drafted=drafted)  # for modules imported later
    vars(decoder_process).update(drafted=drafted, _answers=answers, COMPUTING_S=0)
    decoder_process.main()
