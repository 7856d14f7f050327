"""What comes before an exported network: from an image or its file to the network's input.

The ONNX operators repeat what a served model does: a large image is reduced, its short side to
`BOUND` times what the framing needs, and then the crop, or all of the image, is resampled.
"""

import math
from typing import Any, Literal

import numpy as np
import onnx
from onnx import compose, inliner, numpy_helper
from onnxscript import UINT8, OnnxFunction, optimizer, script
from onnxscript import opset20 as op

from train_pytorch_model.export.file_decoding import decoding_of
from train_pytorch_model.export.resampling import DOUBLE, limit, reduce, resample, side_of_blocks
from train_pytorch_model.image_classifier.decoding import BOUND
from train_pytorch_model.image_classifier.spec import Framing

Step = OnnxFunction[..., Any]
_UINT8: Any = UINT8  # which takes a shape in brackets


def prepend_framing(
    network: onnx.ModelProto, framing: Framing, kind: Literal["image", "file"]
) -> onnx.ModelProto:
    """Return the network, which takes framed images (N, 3, H, W), uint8, with another input.

    `image` is RGB and upright, (height, width, 3), uint8; `file` is (bytes,), uint8, of a JPEG or
    PNG.
    """
    bound = _tensor(math.ceil(BOUND * framing.short_side))
    model = _prepend(_framing_of(framing, bound), _UINT8["height", "width", 3], network)
    if kind == "file":
        model = _prepend(decoding_of(bound, framing.colours), _UINT8["bytes"], model)
    return model


def _prepend(step: Step, input_type: type, model: onnx.ModelProto) -> onnx.ModelProto:
    (model_input,) = model.graph.input
    first = step.to_model_proto(input_types=[input_type], output_types=[_UINT8[...]])
    first.ir_version = model.ir_version
    first = inliner.inline_local_functions(first)
    # ONNX Runtime would warn of each `CastLike` that it cannot fold itself.
    optimizer.fold_constants(first)
    optimizer.remove_unused_nodes(first)
    first = compose.add_prefix(first, f"{step.name}/", rename_inputs=False)
    (step_output,) = first.graph.output
    return compose.merge_models(first, model, [(step_output.name, model_input.name)])


def _framing_of(framing: Framing, bound: onnx.TensorProto) -> Step:
    """Return the step from `image`, (height, width, 3), to (1, 3, H, W), both uint8.

    See `Framing`.
    """
    frame_size = _tensor((framing.height, framing.width))
    crop_fraction = _tensor(framing.crop_fraction)
    is_cropped = _tensor(framing.mode == "crop")
    is_padded = _tensor(framing.mode == "pad")

    @script(default_opset=op)
    def frame(image):
        image = reduce(image, side_of_blocks(image, op.Constant(value=bound)))
        size = op.Cast(op.Shape(image, end=2), to=DOUBLE)
        frame = op.Constant(value=frame_size)
        to_size = limit(size, op.Constant(value=bound))
        planes = op.Unsqueeze(op.Transpose(image, perm=[2, 0, 1]), [0])
        if op.ReduceMin(size, keepdims=0) > op.Constant(value=bound):
            small = resample(planes, size * 0.0, size, to_size, to_size)
        else:
            small = op.Identity(planes)

        # An image of the frame's size is used unchanged, uncropped as well.
        differs = op.ReduceMax(op.Abs(to_size - frame), keepdims=0) > 0.0
        fraction = op.Where(differs, op.Constant(value=crop_fraction), op.Cast(1.0, to=DOUBLE))
        box = frame * (fraction * op.ReduceMin(to_size / frame, keepdims=0))
        crops = op.Constant(value=is_cropped)
        start = op.Where(crops, op.Max((to_size - box) / 2.0, 0.0), op.Cast(0.0, to=DOUBLE))
        end = op.Where(crops, op.Min(to_size, start + box), to_size)

        # Padding surrounds the whole image; all else fills the frame.
        whole = op.Max(op.Round(to_size * op.ReduceMin(frame / to_size, keepdims=0)), 1.0)
        inner = op.Where(op.Constant(value=is_padded), whole, frame)
        return resample(small, start, end, inner, frame)

    return frame


def _tensor(values: float | tuple[int, int]) -> onnx.TensorProto:
    dtype = bool if isinstance(values, bool) else float
    return numpy_helper.from_array(np.array(values, dtype=dtype))
