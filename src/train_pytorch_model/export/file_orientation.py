"""How a JPEG or PNG is turned upright by its EXIF or else its XMP, by ONNX operators.

The rules are Pillow's, which a served model follows. The functions are translated by onnxscript.
"""

import numpy as np
from onnx import numpy_helper
from onnxscript import opset20 as op
from onnxscript import script

from train_pytorch_model.export.file_segments import (
    ANY,
    HEADER,
    POWERS,
    bytes_at,
    first_like,
    last_like,
)
from train_pytorch_model.export.resampling import BYTE, INT64

JPEG_EXIF = [0xFF, 0xE1, ANY, ANY, *b"Exif\0\0"]
JPEG_XMP = [0xFF, 0xE1, ANY, ANY, *b"http://ns.adobe.com/xap/1.0/\0"]
PNG_EXIF = [ANY, ANY, ANY, ANY, *b"eXIf"]
PNG_XMP = [ANY, ANY, ANY, ANY, *b"iTXtXML:com.adobe.xmp\0"]
# Where a segment, a chunk and a directory of EXIF tell their size.
SEGMENT_LENGTH = [2, 3]
CHUNK_LENGTH = [0, 1, 2, 3]
COUNT = [0, 1]
MAX_XMP_BYTES = 1 << 17  # looked at; a JPEG's has at most 1 << 16

INTEL = ord("I")
MOTOROLA = ord("M")
TIFF = 42
ORIENTATION = 0x0112
# Types of EXIF's entries, and where the parts of one are.
SHORT, LONG, SIGNED_BYTE, SIGNED_SHORT, SIGNED_LONG, DIRECTORY = 3, 4, 6, 8, 9, 13
TYPE_BYTES = [0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 0]  # 0: no type
LONG_PLACES = [0, 1, 2, 3]
ENTRY = list(range(12))
INTEL_SHORT = [1, 1 << 8]
MOTOROLA_SHORT = [1 << 8, 1]
INTEL_LONG = [1, 1 << 8, 1 << 16, 1 << 24]

XMP_NAME = list(b"tiff:Orientation")
XMP_INITIAL = ord("O")
XMP_WINDOW = [*range(-5, 14)]  # around the initial: the name, =" or >, and a digit
EQUALS, QUOTE, GREATER, ZERO, NINE = b'=">09'

# EXIF orientation → steps through rows and columns, which are exchanged first from 5 on; 0: there
# is none.
STEPS = numpy_helper.from_array(
    np.array([(1, 1), (1, 1), (1, -1), (-1, -1), (-1, 1), (1, 1), (1, -1), (-1, -1), (-1, 1)])
)
END = (1 << 31) - 1  # beyond any image


@script(default_opset=op)
def _part_of_segment(file, start, header_bytes):
    """Return where the text of a JPEG's segment begins, after its header, and ends: (2,)."""
    places = op.Max(start + op.Constant(value_ints=SEGMENT_LENGTH), 0)
    length = op.ReduceSum(bytes_at(file, places) * op.Constant(value_ints=MOTOROLA_SHORT))
    part = op.Concat(start + header_bytes, start + length + 2, axis=0)
    return op.Where(start < 0, 0, part)


@script(default_opset=op)
def _part_of_chunk(file, start, header_bytes):
    """Return where the text of a PNG's chunk begins, after its header, and ends: (2,)."""
    places = op.Max(start + op.Constant(value_ints=CHUNK_LENGTH), 0)
    length = op.ReduceSum(bytes_at(file, places) * op.Constant(value_ints=POWERS))
    part = op.Concat(start + header_bytes, start + length + 8, axis=0)
    return op.Where(start < 0, 0, part)


@script(default_opset=op)
def metadata_of_jpeg(file, segments):
    """Return where EXIF and XMP begin and end in a JPEG, (2,) each; 0 and 0 if there is none."""
    exif = first_like(file, segments, op.Constant(value_ints=JPEG_EXIF))
    xmp = last_like(file, segments, op.Constant(value_ints=JPEG_XMP))
    return _part_of_segment(file, exif, 10), _part_of_segment(file, xmp, 33)


@script(default_opset=op)
def metadata_of_png(file, chunks):
    """Return where EXIF and XMP begin and end in a PNG, (2,) each; 0 and 0 if there is none."""
    exif = last_like(file, chunks, op.Constant(value_ints=PNG_EXIF))
    xmp = last_like(file, chunks, op.Constant(value_ints=PNG_XMP))
    return _part_of_chunk(file, exif, 8), _part_of_chunk(file, xmp, 26)


@script(default_opset=op)
def _first_directory(file, part, head, short, long):
    """Return where its entries are, (N,), N at least 1, and how many there are.

    The next directory describes the thumbnail.
    """
    directory = part[:1] + op.ReduceSum(head[4:] * long)
    claimed = op.ReduceSum(bytes_at(file, directory + op.Constant(value_ints=COUNT)) * short)
    room = op.Max(part[1:] - directory - 2, 0) / 12
    count = op.Min(claimed, room)
    rows = op.Range(0, op.Squeeze(op.Max(count, 1)), 1)
    return directory + 2 + rows * 12, count


@script(default_opset=op)
def _numbers_at(file, places, kind, short, long):
    """Return the numbers of some types of EXIF, (N,); 1 for other types."""
    value = bytes_at(file, op.Unsqueeze(places, [1]) + op.Constant(value_ints=LONG_PLACES))
    is_short = op.Or(kind == SHORT, kind == SIGNED_SHORT)
    is_long = op.Or(op.Or(kind == LONG, kind == SIGNED_LONG), kind == DIRECTORY)
    as_short = op.ReduceSum(value[:, :2] * short, [1], keepdims=0)
    as_long = op.ReduceSum(value * long, [1], keepdims=0)
    others = op.Where(kind == SIGNED_BYTE, value[:, 0], 1)
    return op.Where(is_short, as_short, op.Where(is_long, as_long, others))


@script(default_opset=op)
def _exif_orientation(file, part):
    """Return the orientation, (1,), in the EXIF of this part; 0: not said, 1: it is broken."""
    start = part[:1]
    end = part[1:]
    head = bytes_at(file, start + op.Constant(value_ints=HEADER))
    is_intel = head[:1] == INTEL
    is_known = op.And(head[:1] == head[1:2], op.Or(is_intel, head[:1] == MOTOROLA))
    is_tiff = op.And(op.And(is_known, end - start >= 8), head[2:3] + head[3:4] == TIFF)
    intel_short = op.Constant(value_ints=INTEL_SHORT)
    intel_long = op.Constant(value_ints=INTEL_LONG)
    short = op.Where(is_intel, intel_short, op.Constant(value_ints=MOTOROLA_SHORT))
    long = op.Where(is_intel, intel_long, op.Constant(value_ints=POWERS))

    places, count = _first_directory(file, part, head, short, long)
    entries = bytes_at(file, op.Unsqueeze(places, [1]) + op.Constant(value_ints=ENTRY))
    tag = op.ReduceSum(entries[:, :2] * short, [1], keepdims=0)
    kind = op.ReduceSum(entries[:, 2:4] * short, [1], keepdims=0)
    num_values = op.ReduceSum(entries[:, 4:8] * long, [1], keepdims=0)
    offset = op.ReduceSum(entries[:, 8:] * long, [1], keepdims=0)

    # Values of more than four bytes are elsewhere.
    sizes = op.Constant(value_ints=TYPE_BYTES)
    value_bytes = op.Gather(sizes, op.Min(kind, op.Size(sizes) - 1)) * num_values
    is_elsewhere = value_bytes > 4
    is_cut_off = op.And(is_elsewhere, start + offset + value_bytes > end)
    value_places = op.Where(is_elsewhere, start + offset, places + 8)
    numbers = _numbers_at(file, value_places, kind, short, long)

    is_entry = op.And(value_bytes > 0, op.Not(is_cut_off))
    is_orientation = op.And(op.And(tag == ORIENTATION, is_entry), count > 0)
    index = op.ArgMax(op.Cast(is_orientation, to=BYTE), axis=0, keepdims=1, select_last_index=1)
    orientation = op.Gather(op.Where(is_orientation, op.Max(numbers, 1), 0), index)
    return op.Where(is_tiff, orientation, 1)


@script(default_opset=op)
def _xmp_orientation(file, part):
    """Return the orientation, (1,), in the XMP of this part; 0 if it is not said."""
    start = part[:1]
    text = op.Slice(file, start, op.Min(part[1:], start + MAX_XMP_BYTES))
    # Places of its initial, which is rare, and of the text's first byte, so that there is one.
    is_initial = op.Cast(text, to=INT64) == XMP_INITIAL
    initials = op.Concat([0], op.Squeeze(op.NonZero(is_initial), [0]), axis=0)
    places = op.Unsqueeze(start + initials, [1]) + op.Constant(value_ints=XMP_WINDOW)
    windows = bytes_at(file, places)

    mismatch = op.Abs(windows[:, :16] - op.Constant(value_ints=XMP_NAME))
    is_name = op.ReduceMax(mismatch, [1], keepdims=0) == 0
    is_attribute = op.And(windows[:, 16] == EQUALS, windows[:, 17] == QUOTE)
    is_element = windows[:, 16] == GREATER
    digits = op.Where(is_attribute, windows[:, 18], windows[:, 17])
    is_digit = op.And(digits >= ZERO, digits <= NINE)
    is_said = op.And(op.And(is_name, is_digit), op.Or(is_attribute, is_element))
    index = op.ArgMax(op.Cast(is_said, to=BYTE), axis=0, keepdims=1)
    return op.Gather(op.Where(is_said, digits - ZERO, 0), index)


@script(default_opset=op)
def _orientation(file, exif, xmp):
    """Return the orientation: 1 to 8; 0 if it is not said."""
    if op.ReduceMax(exif, keepdims=0) > 0:
        by_exif = _exif_orientation(file, exif)
    else:
        by_exif = op.Identity(op.Constant(value_ints=[0]))
    if op.And(op.ReduceMax(xmp, keepdims=0) > 0, op.Squeeze(by_exif) == 0):
        orientation = _xmp_orientation(file, xmp)
    else:
        orientation = op.Identity(by_exif)
    return op.Squeeze(op.Where(orientation > 8, 0, orientation))


@script(default_opset=op)
def turn_upright(image, file, exif, xmp):
    """Return the image as the EXIF or XMP of its file, (bytes,), says; see `metadata_of_jpeg`."""
    orientation = _orientation(file, exif, xmp)
    if orientation > 4:  # noqa: SIM108, onnxscript has no conditional expressions
        turned = op.Transpose(image, perm=[1, 0, 2])
    else:
        turned = op.Identity(image)
    steps = op.Gather(op.Constant(value=STEPS), orientation)
    return op.Slice(turned, (steps - 1) / 2, steps * END, [0, 1], steps)
