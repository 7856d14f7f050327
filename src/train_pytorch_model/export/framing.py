"""What comes before an exported network: from an image of any size, or its file, to the network's
input.

The ONNX operators repeat what a served model does: a large image is reduced by a power of 2, its
short side to `BOUND` times what the framing needs, and then the crop, or all of the image, is
resampled as by Pillow, from edges between pixels. `Resize` does not do that: OpenVINO's does not
antialias, and ONNX Runtime's, as fast, is off by up to nine grey levels in large images.
"""

import math
from typing import Any, Literal

import numpy as np
import onnx
from onnx import compose, inliner, numpy_helper
from onnxscript import UINT8, OnnxFunction, optimizer, script
from onnxscript import opset20 as op
from onnxscript.values import Opset

from train_pytorch_model.image_classifier.decoding import BOUND
from train_pytorch_model.image_classifier.spec import Framing

Step = OnnxFunction[..., Any]
_UINT8: Any = UINT8  # which takes a shape in brackets
FLOAT, BYTE, INT64, DOUBLE = 1, 2, 7, 11  # of onnx.TensorProto
EXTENSIONS = Opset("com.microsoft.extensions", 1)  # of onnxruntime-extensions
# EXIF's entry 0x0112, one short, up to the orientation: in Intel's order of bytes, and in
# Motorola's.
ENTRY = list(range(10))  # bytes, with the orientation
INTEL, MOTOROLA = [0x12, 1, 3, 0, 1, 0, 0, 0], [1, 0x12, 0, 3, 0, 0, 0, 1, 0]
# EXIF orientation → steps through rows and columns, which are exchanged first from 5 on; 0: there
# is none.
STEPS = numpy_helper.from_array(
    np.array([(1, 1), (1, 1), (1, -1), (-1, -1), (-1, 1), (1, 1), (1, -1), (-1, -1), (-1, 1)])
)
END = (1 << 31) - 1  # beyond any image
HEAD_BYTES = 1 << 17  # where a JPEG's header is, after its EXIF
# RGB → luma and the two differences of colour, and back: ITU-T T.871, without the offset of 128.
TO_YCC = np.array(
    [[0.299, -0.168735892, 0.5], [0.587, -0.331264108, -0.418687589], [0.114, 0.5, -0.081312411]]
)
YCC, RGB = (
    numpy_helper.from_array(each.astype(np.float32)) for each in (TO_YCC, np.linalg.inv(TO_YCC))
)
END_OF_JPEG = [0xFF, 0xD9]
POWERS = [1 << exponent for exponent in range(1, 16)]


def prepend_framing(
    network: onnx.ModelProto, framing: Framing, kind: Literal["image", "file"]
) -> onnx.ModelProto:
    """The network, which takes framed images (N, 3, H, W), uint8, with another input.

    `image` is RGB and upright, (height, width, 3), uint8; `file` is (bytes,), uint8, of a JPEG or
    PNG.
    """
    bound = _tensor(math.ceil(BOUND * framing.short_side))
    framed = _prepend(_framing_of(framing, bound), _UINT8["height", "width", 3], network)
    return framed if kind == "image" else _prepend(_decoding_of(bound), _UINT8["bytes"], framed)


def _prepend(step: Step, input_type: type, model: onnx.ModelProto) -> onnx.ModelProto:
    (taken,) = model.graph.input
    first = step.to_model_proto(input_types=[input_type], output_types=[_UINT8[...]])
    first.ir_version = model.ir_version
    first = inliner.inline_local_functions(first)
    optimizer.fold_constants(
        first
    )  # ONNX Runtime would warn of each `CastLike` that it cannot fold itself
    optimizer.remove_unused_nodes(first)
    first = compose.add_prefix(first, f"{step.name}/", rename_inputs=False)
    return compose.merge_models(first, model, [(first.graph.output[0].name, taken.name)])


def _tensor(values: float | tuple[int, int]) -> onnx.TensorProto:
    return numpy_helper.from_array(
        np.array(values, dtype=bool if isinstance(values, bool) else float)
    )


@script(default_opset=op)
def _resample_part(planes, start, end, inner, outer, part):
    """Columns of `_resample_rows`: the `part`-th eighth of them, from 0."""
    scale = (end - start) / inner
    support = op.Max(scale, 1.0)
    one, number = op.Cast(1.0, to=DOUBLE), op.Cast(part, to=DOUBLE)
    column = op.Range(op.Floor(outer * number / 8.0), op.Floor(outer * (number + 1.0) / 8.0), one)
    inside = op.Clip(column - op.Floor((outer - inner) / 2.0), 0.0, inner - 1.0)
    centre = start + (inside + 0.5) * scale
    length = op.Cast(op.Shape(planes, start=3), to=DOUBLE)[0]
    first = op.Max(op.Floor(op.ReduceMin(centre, keepdims=0) - support), 0.0)
    last = op.Min(op.Ceil(op.ReduceMax(centre, keepdims=0) + support), length)
    distance = op.Abs(
        op.Unsqueeze(op.Range(first, last, one) + 0.5, [1]) - op.Unsqueeze(centre, [0])
    )
    triangle = op.Relu(1.0 - distance / support)
    weights = op.Cast(triangle / op.ReduceSum(triangle, [0]), to=FLOAT)
    pixels = op.Slice(
        planes,
        op.Unsqueeze(op.Cast(first, to=INT64), [0]),
        op.Unsqueeze(op.Cast(last, to=INT64), [0]),
        [3],
    )
    return op.Cast(
        op.Clip(op.Round(op.MatMul(op.Cast(pixels, to=FLOAT), weights)), 0.0, 255.0), to=BYTE
    )


@script(default_opset=op)
def _resample_rows(planes, start, end, inner, outer):
    """Planes (1, 3, height, width) → (1, 3, height, outer), uint8, by Pillow's weights of a
    bilinear filter.

    Pixels from `start` to `end` of each row become the `inner` ones in the middle of `outer`; those
    around repeat the edge. Computed in eight parts: the weights of a part are zero but for an
    eighth of the row.
    """
    return op.Concat(
        _resample_part(planes, start, end, inner, outer, 0.0),
        _resample_part(planes, start, end, inner, outer, 1.0),
        _resample_part(planes, start, end, inner, outer, 2.0),
        _resample_part(planes, start, end, inner, outer, 3.0),
        _resample_part(planes, start, end, inner, outer, 4.0),
        _resample_part(planes, start, end, inner, outer, 5.0),
        _resample_part(planes, start, end, inner, outer, 6.0),
        _resample_part(planes, start, end, inner, outer, 7.0),
        axis=3,
    )


@script(default_opset=op)
def _resample(planes, start, end, inner, outer):
    """Rows, then columns, of planes (1, 3, height, width); the others are (2,), for height and
    width.
    """
    wide = _resample_rows(planes, start[1], end[1], inner[1], outer[1])
    turned = op.Transpose(wide, perm=[0, 1, 3, 2])
    return op.Transpose(
        _resample_rows(turned, start[0], end[0], inner[0], outer[0]), perm=[0, 1, 3, 2]
    )


@script(default_opset=op)
def _limit(size, bound):
    """`decoding.limit_size`: nothing changes where the short side is not above the bound."""
    short = op.ReduceMin(size, keepdims=0)
    to_short = op.Min(short, bound)
    return op.Max(to_short, op.Round(size * to_short / short))


@script(default_opset=op)
def _average_blocks(image, block):
    """Each block, (2,), of the pixels of (height, width, 3), float32, becomes one; edges are
    repeated.
    """
    size = op.Shape(image, end=2)
    to_size = (size + block - 1) / block
    pads = op.Concat([0, 0, 0], to_size * block - size, [0], axis=0)
    padded = op.Pad(image, pads, mode="edge")
    rows = op.ReduceMean(
        op.Reshape(padded, op.Concat(to_size[:1], block[:1], [-1], axis=0)), [1], keepdims=0
    )
    return op.ReduceMean(
        op.Reshape(rows, op.Concat(to_size, block[1:], [3], axis=0)), [2], keepdims=0
    )


@script(default_opset=op)
def _sampling_of(file):
    """How many pixels share a sample of colour in a JPEG, (2,), down and across; (1, 1) if not said
    early.
    """
    head = op.Cast(file[:HEAD_BYTES], to=FLOAT)
    count = (
        op.Size(head) - 12
    )  # of places where the header of a frame with three colours of 8 bits may be
    marker, kind, size = (
        head[:count],
        op.Abs(head[1 : count + 1] - 193.0),
        op.Abs(head[3 : count + 3] - 17.0),
    )
    other = op.Abs(head[4 : count + 4] - 8.0) + op.Abs(head[9 : count + 9] - 3.0) + size
    is_header = op.And(op.And(marker == 255.0, kind <= 1.0), other == 0.0)
    # The last one: those of thumbnails come before it.
    factors = op.Cast(head[11 : count + 11], to=INT64) * op.Cast(is_header, to=INT64)
    last = op.ArgMax(op.Cast(factors > 0, to=BYTE), axis=0, select_last_index=1)
    across = op.Gather(factors, last) / 16
    down = op.Gather(factors, last) - across * 16
    return op.Max(op.Concat(down, across, axis=0), 1)


@script(default_opset=op)
def _interpolate_colours(image, side, sampling):
    """The image (height, width, 3), float32, reduced by `side`, with colours as by Pillow's
    decoder.
    """
    # It interpolates between their samples; onnxruntime-extensions' uses a larger cosine transform.
    ycc = op.MatMul(image, op.Constant(value=YCC))
    luma = op.Round(_average_blocks(ycc, side))
    samples = op.Round(_average_blocks(ycc, side * sampling))
    planes = op.Unsqueeze(op.Transpose(samples, perm=[2, 0, 1]), [0])
    whole = op.Concat([1, 3], op.Shape(samples, end=2) * sampling, axis=0)
    if op.ReduceMax(side, keepdims=0) == 8:  # where Pillow's decoder repeats them
        between = op.Resize(planes, None, None, whole, mode="nearest")
    else:
        between = op.Round(op.Resize(planes, None, None, whole, mode="linear"))
    colours = op.Transpose(op.Squeeze(between, [0]), perm=[1, 2, 0])
    colours = op.Slice(colours, [0, 0], op.Shape(luma, end=2), [0, 1])
    return op.MatMul(op.Concat(luma[:, :, :1], colours[:, :, 1:], axis=2), op.Constant(value=RGB))


@script(default_opset=op)
def _side_of_blocks(image, bound):
    """The blocks of pixels that `pixels.reduce` averages, (2,): a power of 2."""
    size = op.Cast(op.Shape(image, end=2), to=DOUBLE)
    factor = op.ReduceMin(size / _limit(size, bound), keepdims=1)
    powers = op.Constant(value_ints=POWERS)
    reached = op.Where(factor >= op.Cast(powers, to=DOUBLE), powers, 1)
    return op.Expand(op.ReduceMax(reached), [2])


@script(default_opset=op)
def _to_bytes(pixels):
    return op.Cast(op.Clip(op.Floor(pixels + 0.5), 0.0, 255.0), to=BYTE)


@script(default_opset=op)
def _reduced(image, side):
    if op.ReduceMax(side, keepdims=0) > 1:
        reduced = _to_bytes(_average_blocks(op.Cast(image, to=FLOAT), side))
    else:
        reduced = op.Identity(image)
    return reduced


@script(default_opset=op)
def _as_drafted(decoded, is_jpeg, sampling, bound):
    """The RGB image (height, width, 3), not turned yet, as Pillow decodes a JPEG for the bound."""
    channels = op.Shape(decoded, start=2)
    if channels == 4:  # CMYK, inverted as Adobe's programs write it
        ink = op.Cast(decoded, to=FLOAT)
        image = _to_bytes(ink[:, :, :3] * ink[:, :, 3:] / 255.0)
    else:
        image = op.Expand(decoded, [1, 1, 3])
    side = op.Where(is_jpeg, op.Min(_side_of_blocks(image, bound), 8), 1)
    # Colours of half the size in both directions are all used where the image is reduced.
    is_reduced = op.And(op.ReduceMax(side) > 1, op.ReduceMin(sampling) == 2)
    is_interpolated = op.And(op.ReduceMax(sampling) == 2, op.Not(is_reduced))
    if op.And(channels == 3, is_interpolated):
        drafted = _to_bytes(_interpolate_colours(op.Cast(image, to=FLOAT), side, sampling))
    else:
        drafted = _reduced(image, side)
    return drafted


@script(default_opset=op)
def _turn_upright(image, file):
    """The image (height, width, 3) as the EXIF in `file`, (bytes,), says."""
    head = op.Cast(file[:65536], to=INT64)  # where cameras write it
    first = op.Range(0, op.Size(head) - 9, 1)
    windows = op.Gather(head, op.Unsqueeze(first, [1]) + op.Constant(value_ints=ENTRY))
    by_intel = (
        op.ReduceMax(op.Abs(windows[:, :8] - op.Constant(value_ints=INTEL)), [1], keepdims=0) == 0
    )
    by_motorola = (
        op.ReduceMax(op.Abs(windows[:, :9] - op.Constant(value_ints=MOTOROLA)), [1], keepdims=0)
        == 0
    )
    found = op.Where(by_intel, windows[:, 8], op.Where(by_motorola, windows[:, 9], 0))
    orientation = op.Gather(found, op.ArgMax(op.Cast(found > 0, to=BYTE), axis=0, keepdims=0))
    orientation = op.Where(orientation > 8, 0, orientation)
    if orientation > 4:  # noqa: SIM108, onnxscript has no conditional expressions
        turned = op.Transpose(image, perm=[1, 0, 2])
    else:
        turned = op.Identity(image)
    steps = op.Gather(op.Constant(value=STEPS), orientation)
    return op.Slice(turned, (steps - 1) / 2, steps * END, [0, 1], steps)


def _decoding_of(bound: onnx.TensorProto) -> Step:
    """From `file`, (bytes,), to the image, (height, width, 3), both uint8, upright."""

    @script(default_opset=op)
    def decode(file):
        first = op.Cast(file[:2], to=INT64)
        kind = first[0] * 256 + first[1]
        is_jpeg = kind == 0xFFD8
        # The decoder ends the process for files of other kinds, but not for an empty one, which is
        # an error. It waits for ever for the end of a JPEG, which is appended; what is missing of
        # it becomes grey.
        length = op.Where(op.Or(is_jpeg, kind == 0x8950), op.Size(file), 0)
        ended = op.Concat(
            op.Slice(file, [0], op.Unsqueeze(length, [0])),
            op.Cast(op.Constant(value_ints=END_OF_JPEG), to=BYTE),
            axis=0,
        )
        decoded = EXTENSIONS.DecodeImage(ended, color_space="rgb")
        sampling = op.Where(is_jpeg, _sampling_of(file), 1)
        drafted = _as_drafted(decoded, is_jpeg, sampling, op.Constant(value=bound))
        return _turn_upright(drafted, file)

    return decode


def _framing_of(framing: Framing, bound: onnx.TensorProto) -> Step:
    """From `image`, (height, width, 3), to (1, 3, H, W), both uint8: see `Framing`."""
    frame_size = _tensor((framing.height, framing.width))
    crop_fraction = _tensor(framing.crop_fraction)
    crops, pads = _tensor(framing.mode == "crop"), _tensor(framing.mode == "pad")

    @script(default_opset=op)
    def frame(image):
        image = _reduced(image, _side_of_blocks(image, op.Constant(value=bound)))
        size = op.Cast(op.Shape(image, end=2), to=DOUBLE)
        frame = op.Constant(value=frame_size)
        to_size = _limit(size, op.Constant(value=bound))
        planes = op.Unsqueeze(op.Transpose(image, perm=[2, 0, 1]), [0])
        if op.ReduceMin(size, keepdims=0) > op.Constant(value=bound):
            small = _resample(planes, size * 0.0, size, to_size, to_size)
        else:
            small = op.Identity(planes)

        # An image of the frame's size is used unchanged, uncropped as well.
        differs = op.ReduceMax(op.Abs(to_size - frame), keepdims=0) > 0.0
        fraction = op.Where(differs, op.Constant(value=crop_fraction), op.Cast(1.0, to=DOUBLE))
        box = frame * (fraction * op.ReduceMin(to_size / frame, keepdims=0))
        crops_ = op.Constant(value=crops)
        start = op.Where(crops_, op.Max((to_size - box) / 2.0, 0.0), op.Cast(0.0, to=DOUBLE))
        end = op.Where(crops_, op.Min(to_size, start + box), to_size)
        whole = op.Max(op.Round(to_size * op.ReduceMin(frame / to_size, keepdims=0)), 1.0)
        inner = op.Where(op.Constant(value=pads), whole, frame)

        return _resample(small, start, end, inner, frame)

    return frame
