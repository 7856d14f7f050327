"""What comes before an exported network: from an image of any size, or its file, to the network's input.

The ONNX operators repeat what a served model does: the short side is first reduced to `BOUND` times what the
framing needs, then the crop, or all of the image, is resampled as by Pillow, from edges between pixels.
"""

import math
from typing import Any, Literal

import numpy as np
import onnx
from onnx import compose, inliner, numpy_helper
from onnxscript import UINT8, OnnxFunction, script
from onnxscript import opset20 as op
from onnxscript.values import Opset

from train_pytorch_model.image_classifier.decoding import BOUND
from train_pytorch_model.image_classifier.preprocessing import Framing

Step = OnnxFunction[..., Any]
_UINT8: Any = UINT8  # which takes a shape in brackets
FLOAT, BYTE, INT64, DOUBLE = 1, 2, 7, 11  # of onnx.TensorProto
EXTENSIONS = Opset("com.microsoft.extensions", 1)  # of onnxruntime-extensions
# EXIF's entry 0x0112, one short, up to the orientation: in Intel's order of bytes, and in Motorola's.
ENTRY = list(range(10))  # bytes, with the orientation
INTEL, MOTOROLA = [0x12, 1, 3, 0, 1, 0, 0, 0], [1, 0x12, 0, 3, 0, 0, 0, 1, 0]
# EXIF orientation → steps through rows and columns, which are exchanged first from 5 on; 0: there is none.
STEPS = numpy_helper.from_array(
    np.array([(1, 1), (1, 1), (1, -1), (-1, -1), (-1, 1), (1, 1), (1, -1), (-1, -1), (-1, 1)])
)
END = (1 << 31) - 1  # beyond any image


def prepend_framing(
    network: onnx.ModelProto, framing: Framing, kind: Literal["image", "file"]
) -> onnx.ModelProto:
    """The network, which takes framed images (N, 3, H, W), uint8, with another input.

    `image` is RGB and upright, (height, width, 3), uint8; `file` is (bytes,), uint8, of a JPEG or PNG.
    """
    framed = _prepend(_framing_of(framing), _UINT8["height", "width", 3], network)
    return framed if kind == "image" else _prepend(_decode, _UINT8["bytes"], framed)


def _prepend(step: Step, input_type: type, model: onnx.ModelProto) -> onnx.ModelProto:
    (taken,) = model.graph.input
    first = step.to_model_proto(input_types=[input_type], output_types=[_UINT8[...]])
    first.ir_version = model.ir_version
    first = compose.add_prefix(inliner.inline_local_functions(first), f"{step.name}/", rename_inputs=False)
    return compose.merge_models(first, model, [(first.graph.output[0].name, taken.name)])


def _tensor(values: float | tuple[int, int]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype=bool if isinstance(values, bool) else float))


@script(default_opset=op)
def _weights(length, start, end, inner, outer):
    """Pillow's weights of a bilinear filter, (outer, length), float32.

    Pixels from `start` to `end` of `length` become the `inner` ones in the middle of `outer`; those around
    repeat the edge.
    """
    scale = (end - start) / inner
    before = op.Floor((outer - inner) / 2.0)
    zero, one = op.Cast(0.0, to=DOUBLE), op.Cast(1.0, to=DOUBLE)
    index = op.Clip(op.Range(zero, outer, one) - before, 0.0, inner - 1.0)
    centre = start + (index + 0.5) * scale
    pixel = op.Range(zero, length, one) + 0.5
    distance = op.Abs(op.Unsqueeze(pixel, [0]) - op.Unsqueeze(centre, [1]))
    triangle = op.Relu(1.0 - distance / op.Max(scale, 1.0))
    return op.Cast(triangle / op.ReduceSum(triangle, [1]), to=FLOAT)


@script(default_opset=op)
def _decode(file):
    """From `file`, (bytes,), to the image, (height, width, 3), both uint8, upright as EXIF says."""
    decoded = EXTENSIONS.DecodeImage(file, color_space="rgb")
    head = op.Cast(file[:65536], to=INT64)  # where cameras write it
    first = op.Range(0, op.Size(head) - 9, 1)
    windows = op.Gather(head, op.Unsqueeze(first, [1]) + op.Constant(value_ints=ENTRY))
    by_intel = op.ReduceMax(op.Abs(windows[:, :8] - op.Constant(value_ints=INTEL)), [1], keepdims=0) == 0
    by_motorola = (
        op.ReduceMax(op.Abs(windows[:, :9] - op.Constant(value_ints=MOTOROLA)), [1], keepdims=0) == 0
    )
    found = op.Where(by_intel, windows[:, 8], op.Where(by_motorola, windows[:, 9], 0))
    orientation = op.Gather(found, op.ArgMax(op.Cast(found > 0, to=BYTE), axis=0, keepdims=0))
    orientation = op.Where(orientation > 8, 0, orientation)
    if orientation > 4:  # noqa: SIM108, onnxscript has no conditional expressions
        turned = op.Transpose(decoded, perm=[1, 0, 2])
    else:
        turned = op.Identity(decoded)
    steps = op.Gather(op.Constant(value=STEPS), orientation)
    return op.Slice(turned, (steps - 1) / 2, steps * END, [0, 1], steps)


def _framing_of(framing: Framing) -> Step:
    """From `image`, (height, width, 3), to (1, 3, H, W), both uint8: see `Framing`."""
    frame_size = _tensor((framing.height, framing.width))
    bound = _tensor(math.ceil(BOUND * framing.short_side))
    crop_fraction = _tensor(framing.crop_fraction)
    is_crop, is_pad = framing.mode == "crop", framing.mode == "pad"
    crops, pads = _tensor(is_crop), _tensor(is_pad)

    @script(default_opset=op)
    def frame(image):
        size = op.Cast(op.Shape(image, end=2), to=DOUBLE)
        frame = op.Constant(value=frame_size)
        # As `limit_size` does: nothing changes where the short side is not above the bound.
        short = op.ReduceMin(size, keepdims=0)
        to_short = op.Min(short, op.Constant(value=bound))
        to_size = op.Max(to_short, op.Round(size * to_short / short))
        planes = op.Unsqueeze(op.Transpose(image, perm=[2, 0, 1]), [0])
        sizes = op.Concat([1, 3], op.Cast(to_size, to=INT64), axis=0)
        small = op.Cast(op.Resize(planes, None, None, sizes, mode="linear", antialias=1), to=FLOAT)
        reduced = op.Cast(op.Shape(small, start=2), to=DOUBLE)  # OpenVINO may miss the size by a pixel

        # An image of the frame's size is used unchanged, uncropped as well.
        differs = op.ReduceMax(op.Abs(reduced - frame), keepdims=0) > 0.0
        fraction = op.Where(differs, op.Constant(value=crop_fraction), op.CastLike(1.0, size))
        box = frame * (fraction * op.ReduceMin(reduced / frame, keepdims=0))
        crops_ = op.Constant(value=crops)
        start = op.Where(crops_, op.Max((reduced - box) / 2.0, 0.0), op.CastLike(0.0, size))
        end = op.Where(crops_, op.Min(reduced, start + box), reduced)
        whole = op.Max(op.Round(reduced * op.ReduceMin(frame / reduced, keepdims=0)), 1.0)
        inner = op.Where(op.Constant(value=pads), whole, frame)

        rows = _weights(reduced[0], start[0], end[0], inner[0], frame[0])
        columns = _weights(reduced[1], start[1], end[1], inner[1], frame[1])
        # As Pillow, which rounds in between.
        wide = op.Clip(op.Round(op.MatMul(small, op.Transpose(columns))), 0.0, 255.0)
        return op.Cast(op.Clip(op.Round(op.MatMul(rows, wide)), 0.0, 255.0), to=BYTE)

    return frame
