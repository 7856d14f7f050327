"""A decoder that does what the name of a file says: crash, never end, be killed, want all memory."""

import os
import signal
from pathlib import Path

from PIL import Image

from train_pytorch_model import decoder_process
from train_pytorch_model.image_classifier import decoding

right = decoding.drafted


def drafted(file: str, short_side: int) -> Image.Image:
    """What the name says, else the image."""
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


def main() -> None:
    """In the place of `decoder_process.main`."""
    vars(decoding).update(drafted=drafted)  # for what is imported later
    vars(decoder_process).update(drafted=drafted, COMPUTING_S=0)
    decoder_process.main()
