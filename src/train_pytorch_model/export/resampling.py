"""Images made smaller by ONNX operators as a served model does it, which is as Pillow does it.

A large image is reduced by a power of 2, its short side to a bound, and then resampled from edges
between pixels. `Resize` does not do that: OpenVINO's does not antialias, and ONNX Runtime's, as
fast, is off by up to nine grey levels in large images.

These functions are translated by onnxscript. An image is (height, width, 3).
"""

from onnxscript import opset20 as op
from onnxscript import script

# Of onnx.TensorProto.
FLOAT = 1
BYTE = 2
INT64 = 7
DOUBLE = 11

POWERS = [1 << exponent for exponent in range(1, 16)]


@script(default_opset=op)
def _resample_part(planes, start, end, inner, outer, part):
    """Return columns of `_resample_rows`: the `part`-th eighth of them, from 0."""
    scale = (end - start) / inner
    support = op.Max(scale, 1.0)
    one = op.Cast(1.0, to=DOUBLE)

    # Where the centre of each column is in the rows.
    number = op.Cast(part, to=DOUBLE)
    first_column = op.Floor(outer * number / 8.0)
    end_column = op.Floor(outer * (number + 1.0) / 8.0)
    column = op.Range(first_column, end_column, one)
    margin = op.Floor((outer - inner) / 2.0)
    inside = op.Clip(column - margin, 0.0, inner - 1.0)
    centre = start + (inside + 0.5) * scale

    # The pixels that any of these columns needs.
    length = op.Cast(op.Shape(planes, start=3), to=DOUBLE)[0]
    first = op.Max(op.Floor(op.ReduceMin(centre, keepdims=0) - support), 0.0)
    last = op.Min(op.Ceil(op.ReduceMax(centre, keepdims=0) + support), length)

    # Their weights: (pixels, columns).
    pixel = op.Range(first, last, one) + 0.5
    offset = op.Unsqueeze(pixel, [1]) - op.Unsqueeze(centre, [0])
    distance = op.Abs(offset)
    triangle = op.Relu(1.0 - distance / support)
    total = op.ReduceSum(triangle, [0])
    weights = op.Cast(triangle / total, to=FLOAT)

    starts = op.Unsqueeze(op.Cast(first, to=INT64), [0])
    ends = op.Unsqueeze(op.Cast(last, to=INT64), [0])
    pixels = op.Slice(planes, starts, ends, [3])
    resampled = op.MatMul(op.Cast(pixels, to=FLOAT), weights)
    return op.Cast(op.Clip(op.Round(resampled), 0.0, 255.0), to=BYTE)


@script(default_opset=op)
def _resample_rows(planes, start, end, inner, outer):
    """Return planes (1, 3, height, width) as (1, 3, height, outer), uint8, by Pillow's weights.

    They are those of a bilinear filter. Pixels from `start` to `end` of each row become the `inner`
    ones in the middle of `outer`; those around repeat the edge. Computed in eight parts: the
    weights of a part are zero but for an eighth of the row.
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
def resample(planes, start, end, inner, outer):
    """Return planes (1, 3, height, width) with resampled rows, then columns.

    The other arguments are (2,), for height and width: see `_resample_rows`.
    """
    wide = _resample_rows(planes, start[1], end[1], inner[1], outer[1])
    turned = op.Transpose(wide, perm=[0, 1, 3, 2])
    high = _resample_rows(turned, start[0], end[0], inner[0], outer[0])
    return op.Transpose(high, perm=[0, 1, 3, 2])


@script(default_opset=op)
def limit(size, bound):
    """Return `decoding.limit_size`: the size, unless the short side is above the bound."""
    short = op.ReduceMin(size, keepdims=0)
    to_short = op.Min(short, bound)
    return op.Max(to_short, op.Round(size * to_short / short))


@script(default_opset=op)
def average_blocks(image, block):
    """Return an image, float32, of whose blocks, (2,), each pixel is one; edges are repeated."""
    size = op.Shape(image, end=2)
    to_size = (size + block - 1) / block
    pads = op.Concat([0, 0, 0], to_size * block - size, [0], axis=0)
    padded = op.Pad(image, pads, mode="edge")
    row_shape = op.Concat(to_size[:1], block[:1], [-1], axis=0)
    rows = op.ReduceMean(op.Reshape(padded, row_shape), [1], keepdims=0)
    block_shape = op.Concat(to_size, block[1:], [3], axis=0)
    return op.ReduceMean(op.Reshape(rows, block_shape), [2], keepdims=0)


@script(default_opset=op)
def side_of_blocks(image, bound):
    """Return the side, twice: (2,), of the blocks that `pixels.reduce` averages, a power of 2."""
    size = op.Cast(op.Shape(image, end=2), to=DOUBLE)
    factor = op.ReduceMin(size / limit(size, bound), keepdims=1)
    powers = op.Constant(value_ints=POWERS)
    reached = op.Where(factor >= op.Cast(powers, to=DOUBLE), powers, 1)
    return op.Expand(op.ReduceMax(reached), [2])


@script(default_opset=op)
def to_bytes(pixels):
    """Return pixels as uint8, rounded half up."""
    return op.Cast(op.Clip(op.Floor(pixels + 0.5), 0.0, 255.0), to=BYTE)


@script(default_opset=op)
def reduce(image, side):
    """Return the image, uint8, with the mean of each block of that side as a pixel."""
    if op.ReduceMax(side, keepdims=0) > 1:
        reduced = to_bytes(average_blocks(op.Cast(image, to=FLOAT), side))
    else:
        reduced = op.Identity(image)
    return reduced
