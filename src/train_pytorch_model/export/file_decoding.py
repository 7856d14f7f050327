"""From the bytes of a JPEG or PNG to the pixels that a served model decodes, by ONNX operators.

The functions are translated by onnxscript. An image is (height, width, 3).
"""

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxscript import OnnxFunction, script
from onnxscript import opset20 as op
from onnxscript.values import Opset

from train_pytorch_model.export import runtime
from train_pytorch_model.export.file_colours import show_colours
from train_pytorch_model.export.file_orientation import (
    metadata_of_jpeg,
    metadata_of_png,
    turn_upright,
)
from train_pytorch_model.export.file_segments import bytes_at, chunks_of_png, segments_of_jpeg
from train_pytorch_model.export.resampling import (
    BYTE,
    FLOAT,
    INT64,
    average_blocks,
    reduce,
    side_of_blocks,
    to_bytes,
)
from train_pytorch_model.image_classifier.colours import MAX_WHITE, Colours

EXTENSIONS = Opset(runtime.EXTENSIONS, 1)

FRAME_HEADER = list(range(12))  # of a JPEG, up to how the first colour is sampled
END_OF_JPEG = [0xFF, 0xD9]
# RGB → luma and the two differences of colour, and back: ITU-T T.871, without the offset of 128.
TO_YCC = np.array(
    [[0.299, -0.168735892, 0.5], [0.587, -0.331264108, -0.418687589], [0.114, 0.5, -0.081312411]]
)
YCC = numpy_helper.from_array(TO_YCC.astype(np.float32))
RGB = numpy_helper.from_array(np.linalg.inv(TO_YCC).astype(np.float32))


@script(default_opset=op)
def _sampling_of(file, segments):
    """Return how many pixels share a sample of colour in a JPEG, (2,), down and across.

    They are (1, 1) if it has no header of a frame with three colours of 8 bits.
    """
    headers = bytes_at(file, op.Unsqueeze(segments, [1]) + op.Constant(value_ints=FRAME_HEADER))
    is_frame = op.And(headers[:, 0] == 255, op.Abs(headers[:, 1] - 193) <= 1)
    is_8_bits = op.And(headers[:, 4] == 8, headers[:, 9] == 3)
    is_header = op.And(is_frame, is_8_bits)
    factors = op.ReduceMax(op.Where(is_header, headers[:, 11], 0), keepdims=1)
    across = factors / 16
    down = factors - across * 16
    return op.Max(op.Concat(down, across, axis=0), 1)


@script(default_opset=op)
def _interpolate_colours(image, side, sampling):
    """Return the image, float32, reduced by `side`, with colours as by Pillow's decoder.

    It interpolates between their samples; onnxruntime-extensions' uses a larger cosine transform.
    """
    ycc = op.MatMul(image, op.Constant(value=YCC))
    luma = op.Round(average_blocks(ycc, side))
    samples = op.Round(average_blocks(ycc, side * sampling))
    planes = op.Unsqueeze(op.Transpose(samples, perm=[2, 0, 1]), [0])
    whole = op.Concat([1, 3], op.Shape(samples, end=2) * sampling, axis=0)
    if op.ReduceMax(side, keepdims=0) == 8:  # where Pillow's decoder repeats them
        between = op.Resize(planes, None, None, whole, mode="nearest")
    else:
        between = op.Round(op.Resize(planes, None, None, whole, mode="linear"))
    colours = op.Transpose(op.Squeeze(between, [0]), perm=[1, 2, 0])
    colours = op.Slice(colours, [0, 0], op.Shape(luma, end=2), [0, 1])
    merged = op.Concat(luma[:, :, :1], colours[:, :, 1:], axis=2)
    return op.MatMul(merged, op.Constant(value=RGB))


@script(default_opset=op)
def _as_drafted(decoded, is_jpeg, sampling, bound):
    """Return the RGB image, not turned yet, as Pillow decodes a JPEG for the bound."""
    channels = op.Shape(decoded, start=2)
    if channels == 4:  # CMYK, inverted as Adobe's programs write it
        ink = op.Cast(decoded, to=FLOAT)
        image = to_bytes(ink[:, :, :3] * ink[:, :, 3:] / 255.0)
    else:
        image = op.Expand(decoded, [1, 1, 3])
    side = op.Where(is_jpeg, op.Min(side_of_blocks(image, bound), 8), 1)
    # Colours of half the size in both directions are all used where the image is reduced.
    is_reduced = op.And(op.ReduceMax(side) > 1, op.ReduceMin(sampling) == 2)
    is_interpolated = op.And(op.ReduceMax(sampling) == 2, op.Not(is_reduced))
    if op.And(channels == 3, is_interpolated):
        drafted = to_bytes(_interpolate_colours(op.Cast(image, to=FLOAT), side, sampling))
    else:
        drafted = reduce(image, side)
    return drafted


def decoding_of(bound: onnx.TensorProto, colours: Colours) -> OnnxFunction[..., Any]:
    """Return the step from `file`, (bytes,), to the image, both uint8, upright and reduced."""
    white = numpy_helper.from_array(np.array(MAX_WHITE / colours.white_level, dtype=np.float32))
    behind = numpy_helper.from_array(np.array(colours.background))

    @script(default_opset=op)
    def decode(file):
        first = op.Cast(file[:2], to=INT64)
        kind = first[0] * 256 + first[1]
        is_jpeg = kind == 0xFFD8
        # The decoder ends the process for files of other kinds, but not for an empty one, which is
        # an error. It waits for ever for the end of a JPEG, which is appended; what is missing of
        # it becomes grey.
        length = op.Where(op.Or(is_jpeg, kind == 0x8950), op.Size(file), 0)
        accepted = op.Slice(file, [0], op.Unsqueeze(length, [0]))
        end = op.Cast(op.Constant(value_ints=END_OF_JPEG), to=BYTE)
        ended = op.Concat(accepted, end, axis=0)
        decoded = EXTENSIONS.DecodeImage(ended, color_space="rgb")
        if is_jpeg:
            segments = segments_of_jpeg(file)
            sampling = _sampling_of(file, segments)
            exif, xmp = metadata_of_jpeg(file, segments)
            seen = op.Identity(decoded)
        else:
            chunks = chunks_of_png(file)
            sampling = op.Identity(op.Constant(value_ints=[1, 1]))
            exif, xmp = metadata_of_png(file, chunks)
            brightness = op.Constant(value=white)
            background = op.Constant(value=behind)
            seen = show_colours(decoded, file, chunks, brightness, background)
        drafted = _as_drafted(seen, is_jpeg, sampling, op.Constant(value=bound))
        return turn_upright(drafted, file, exif, xmp)

    return decode
