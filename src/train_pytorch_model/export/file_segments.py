"""Where the segments of a JPEG, or the chunks of a PNG, are in its bytes, by ONNX operators.

The functions are translated by onnxscript. They take any bytes, and a bounded time for them.
"""

import numpy as np
from onnx import numpy_helper
from onnxscript import opset20 as op
from onnxscript import script

from train_pytorch_model.export.resampling import BYTE, INT64

MAX_SEGMENTS = 4096  # looked at, and chunks; those of a PNG's pixels are passed over in runs
ANY = -1  # in a pattern of bytes
NONE = numpy_helper.from_array(np.zeros(0, np.int64))

START_OF_SCAN = 0xDA
PNG_SIGNATURE_BYTES = [8]
POWERS = [1 << 24, 1 << 16, 1 << 8, 1]
LENGTH = [0, 1, 2, 3]
HEADER = list(range(8))
PIXELS = list(b"IDAT")
END = int.from_bytes(b"IEND", "big")
RUN = list(range(1, 65))


@script(default_opset=op)
def bytes_at(file, positions):
    """Return the bytes at the positions, int64; the file's last one for positions behind it."""
    last = op.Size(file) - 1
    return op.Cast(op.Gather(file, op.Min(positions, last)), to=INT64)


@script(default_opset=op)
def segments_of_jpeg(file):
    """Return where the segments of a JPEG start, up to the first of pixels: (N,)."""
    size = op.Size(file)
    position = op.Constant(value_ints=[2])
    starts = op.Constant(value=NONE)
    is_inside = size > 4
    while is_inside:
        starts = op.Concat(starts, position, axis=0)
        header = bytes_at(file, position + op.Constant(value_ints=LENGTH))
        marker = header[1:2]
        length = header[2:3] * 256 + header[3:4]
        # Some markers stand alone, and any may be preceded by more bytes of 255.
        is_alone = op.Or(marker <= 1, op.And(marker >= 0xD0, marker <= 0xD9))
        step = op.Where(is_alone, 2, length + 2)
        position = position + op.Where(marker == 255, 1, step)
        is_segment = op.And(header[:1] == 255, marker != START_OF_SCAN)
        is_bounded = op.And(position < size, op.Size(starts) < MAX_SEGMENTS)
        is_inside = op.Squeeze(op.And(is_segment, is_bounded))
    return starts


@script(default_opset=op)
def chunks_of_png(file):
    """Return where the chunks of a PNG start, but for most of those of its pixels: (N,)."""
    size = op.Size(file)
    position = op.Constant(value_ints=PNG_SIGNATURE_BYTES)
    starts = op.Constant(value=NONE)
    is_inside = size > 8
    while is_inside:
        starts = op.Concat(starts, position, axis=0)
        header = bytes_at(file, position + op.Constant(value_ints=HEADER))
        kind = op.ReduceSum(header[4:] * op.Constant(value_ints=POWERS))
        chunk_bytes = op.ReduceSum(header[:4] * op.Constant(value_ints=POWERS)) + 12

        # How many chunks of pixels follow that are as long: most writers write many.
        places = position + chunk_bytes * op.Constant(value_ints=RUN)
        windows = op.Unsqueeze(places, [1]) + op.Constant(value_ints=HEADER)
        alike = op.Concat(header[:4], op.Constant(value_ints=PIXELS), axis=0)
        difference = op.ReduceMax(op.Abs(bytes_at(file, windows) - alike), [1], keepdims=0)
        differs = op.Cast(op.Concat(difference, [1], axis=0) > 0, to=BYTE)
        repeats = op.ArgMax(differs, axis=0, keepdims=1)

        position = position + chunk_bytes * (repeats + 1)
        is_bounded = op.And(position < size, op.Size(starts) < MAX_SEGMENTS)
        is_inside = op.Squeeze(op.And(kind != END, is_bounded))
    return starts


@script(default_opset=op)
def _is_like(file, starts, pattern):
    """Return whether the file has the bytes of the pattern at each start: (N,)."""
    windows = bytes_at(file, op.Unsqueeze(starts, [1]) + op.Range(0, op.Size(pattern), 1))
    mismatch = op.Where(pattern == ANY, 0, op.Abs(windows - pattern))
    return op.ReduceMax(mismatch, [1], keepdims=0) == 0


@script(default_opset=op)
def last_like(file, starts, pattern):
    """Return the last start, (1,), at which the file has the bytes of the pattern, or -1."""
    found = op.Where(_is_like(file, starts, pattern), starts, -1)
    return op.ReduceMax(op.Concat(found, [-1], axis=0))


@script(default_opset=op)
def first_like(file, starts, pattern):
    """Return the first start, (1,), at which the file has the bytes of the pattern, or -1."""
    end = op.Unsqueeze(op.Size(file), [0])
    found = op.Where(_is_like(file, starts, pattern), starts, end)
    first = op.ReduceMin(op.Concat(found, end, axis=0))
    return op.Where(first == end, -1, first)
