"""A network made smaller: 8-bit or 16-bit weights."""

import copy
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from train_pytorch_model.export.checks import frames_of
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.spec import ClassifierSpec

if TYPE_CHECKING:
    import onnx


CALIBRATED = 0.25  # fraction of the images whose activations are seen
MAX_CALIBRATED = 300  # of them: the range of each changes little with more


class Float16(nn.Module):
    """The network in float16, for float32 images and logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).half()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images.half())
        return logits.float()


def quantize(
    network: "onnx.ModelProto", images: ImageDirectory, spec: ClassifierSpec
) -> tuple["onnx.ModelProto", np.ndarray]:
    """Static quantization in int8, by pairs of QuantizeLinear and DequantizeLinear.

    Weights have a scale for each channel, activations the range that they have on some of the
    images, whose indices are returned: one at least, and never all of several. Raises
    `ParameterError` if none can be read.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    seen = evenly_spaced(len(images), min(MAX_CALIBRATED, math.ceil(CALIBRATED * len(images))))
    (taken,) = network.graph.input
    frames = ({taken.name: frame} for _, frame in frames_of(images, seen, spec))

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(frames, None)

    with tempfile.TemporaryDirectory() as folder:
        original, prepared, quantized = (Path(folder, f"{number}.onnx") for number in range(3))
        onnx.save(network, original)
        quant_pre_process(original, prepared, skip_symbolic_shape=True)
        quantize_static(prepared, quantized, Reader(), per_channel=True)
        return onnx.load(quantized), seen
