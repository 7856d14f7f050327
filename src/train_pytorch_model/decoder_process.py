"""One decoder: it reads file names from its standard input and leaves pixels in memory that it shares.

It imports Pillow and nothing else of weight, and starts in a tenth of a second.
"""

import mmap
import os
import struct
import sys

from train_pytorch_model.image_classifier.decoding import MAX_JPEG_PIXELS, UnreadableImageError, drafted
from train_pytorch_model.process_table import end_with_parent

REQUEST = struct.Struct("<II")
"""Short side, and the bytes of the file's name, which follow."""
REPLY = struct.Struct("<II")
"""Height and width of the pixels; 0, and the bytes of the reason, which follow."""
READY = b"."
"""Before the first reply."""

CAPACITY = 3 * MAX_JPEG_PIXELS  # bytes of an address range; only what an image fills takes memory
COMPUTING_S = 60  # for one image; the largest take five. Waiting for a slow storage does not count
MEMORY = 4 << 30  # bytes of address space: a decoder that wants more fails alone


def main() -> None:
    """Serve the process that has started this one until it closes the pipe."""
    import resource  # Windows has none, and imports this module for its constants

    end_with_parent()
    memory = mmap.mmap(int(sys.argv[1]), CAPACITY)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    replies.write(READY)
    replies.flush()
    while header := requests.read(REQUEST.size):
        short_side, length = REQUEST.unpack(header)
        replies.write(_answer(os.fsdecode(requests.read(length)), short_side, memory))
        replies.flush()


def _answer(file: str, short_side: int, memory: mmap.mmap) -> bytes:
    _limit_computing()
    try:
        image = drafted(file, short_side)
        pixels = image.tobytes()
    except (UnreadableImageError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).encode(errors="surrogateescape")
        return REPLY.pack(0, len(reason)) + reason
    memory[: len(pixels)] = pixels
    return REPLY.pack(image.height, image.width)


def _limit_computing() -> None:
    """Have the system end this process (SIGXCPU) if it computes for too long from now on."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    end = int(usage.ru_utime + usage.ru_stime) + 1 + COMPUTING_S
    resource.setrlimit(resource.RLIMIT_CPU, (end if hard == resource.RLIM_INFINITY else min(end, hard), hard))
