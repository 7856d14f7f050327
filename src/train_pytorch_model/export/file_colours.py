"""How the colours of a PNG are shown as by a served model, by ONNX operators.

The decoder keeps the higher eight of 16 bits, and no opacity: only a single transparent colour can
be told by its pixels. The functions are translated by onnxscript.
"""

from onnxscript import opset20 as op
from onnxscript import script

from train_pytorch_model.export.file_segments import ANY, bytes_at, last_like
from train_pytorch_model.export.resampling import BYTE, FLOAT, INT64

TRANSPARENT = [ANY, ANY, ANY, ANY, *b"tRNS"]
# Bytes of a PNG's header: bits of a value, and the type of colours.
DEPTH = [24]
TYPE = [25]
GREY = 0
RGB = 2
# Bytes of a transparent colour, from its chunk's start: red, green and blue, of 16 bits each.
GREY_BYTES = [8, 9, 8, 9, 8, 9]
RGB_BYTES = [8, 9, 10, 11, 12, 13]
# To 8 bits, by depth: the values of 1, 2 and 4 bits are repeated.
FACTORS = [0, 255, 85, 0, 17, 0, 0, 0, 1]


@script(default_opset=op)
def _colour_at(file, place, is_grey, depth):
    """Return the transparent colour of the chunk there as the decoder shows it: (3,)."""
    grey = op.Reshape(op.Constant(value_ints=GREY_BYTES), [3, 2])
    rgb = op.Reshape(op.Constant(value_ints=RGB_BYTES), [3, 2])
    values = bytes_at(file, place + op.Where(is_grey, grey, rgb))
    factor = op.Gather(op.Constant(value_ints=FACTORS), op.Min(depth, 8))
    return op.Where(depth == 16, values[:, 0], values[:, 1] * factor)


@script(default_opset=op)
def show_colours(image, file, chunks, brightness, background):
    """Return the image of a PNG, (height, width, 3), uint8, with its transparent colour replaced.

    Those of 16 bits are multiplied by the brightness.
    """
    depth = bytes_at(file, op.Constant(value_ints=DEPTH))
    colour_type = bytes_at(file, op.Constant(value_ints=TYPE))
    if op.And(op.Squeeze(depth) == 16, brightness > 1.0):
        multiplied = op.Round(op.Cast(image, to=FLOAT) * brightness)
        bright = op.Cast(op.Min(multiplied, 255.0), to=BYTE)
    else:
        bright = op.Identity(image)

    place = last_like(file, chunks, op.Constant(value_ints=TRANSPARENT))
    is_single = op.And(place >= 0, op.Or(colour_type == GREY, colour_type == RGB))
    if op.Squeeze(is_single):
        colour = _colour_at(file, place, colour_type == GREY, depth)
        difference = op.Abs(op.Cast(image, to=INT64) - colour)
        is_seen = op.ReduceMax(difference, [2], keepdims=1) > 0
        shown = op.Where(is_seen, bright, op.Cast(background, to=BYTE))
    else:
        shown = op.Identity(bright)
    return shown
