"""An exported ONNX network in float16 or int8, and what that costs on labelled images."""

import copy
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.stories.export_check import Reduction, question, run_onnx

MAX_CALIBRATED = 300  # images whose activations are seen; the range of each changes little with more


@dataclass(frozen=True)
class Cost:
    """Of another arithmetic, on labelled images; the speed is the network's alone, an image at a time."""

    precision: Literal["float16", "int8"]
    images: int
    accuracy_before: float
    accuracy: float
    mib_before: float
    mib: float
    images_per_second_before: float
    images_per_second: float

    @property
    def lost_points(self) -> float:
        return 100 * (self.accuracy_before - self.accuracy)

    def __str__(self) -> str:
        return (
            f"{self.precision}: accuracy {self.accuracy:.1%} of {self.images:,} images, before"
            f" {self.accuracy_before:.1%}; {self.mib:.1f} MiB, before {self.mib_before:.1f};"
            f" {self.images_per_second:.0f} images/s on this machine, before"
            f" {self.images_per_second_before:.0f}"
        )


class Float16(nn.Module):
    """The network in float16, for float32 images and logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).half()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images.half())
        return logits.float()


def quantize(network: onnx.ModelProto, images: ImageDirectory, spec: ClassifierSpec) -> onnx.ModelProto:
    """Static quantization in int8, by pairs of QuantizeLinear and DequantizeLinear.

    Weights have a scale for each channel, activations the range that they have on the images.
    """
    (taken,) = network.graph.input
    frames = ({taken.name: frame} for _, frame in _frames(images, spec, MAX_CALIBRATED))

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(frames, None)

    with tempfile.TemporaryDirectory() as folder:
        original, prepared, quantized = (Path(folder, f"{number}.onnx") for number in range(3))
        onnx.save(network, original)
        quant_pre_process(original, prepared, skip_symbolic_shape=True)
        quantize_static(prepared, quantized, Reader(), per_channel=True)
        return onnx.load(quantized)


def measure(
    before: onnx.ModelProto, after: onnx.ModelProto, reduction: Reduction, spec: ClassifierSpec
) -> Cost:
    """Run both programs, which take framed images, on all images that can be read."""
    accuracies, speeds = [], []
    for program in (before, after):  # one after the other: idle threads of ONNX Runtime spin
        answer, correct, spent_s = run_onnx(program), [], 0.0
        for target, frame in _frames(reduction.images, spec, len(reduction.images)):
            started_at = time.perf_counter()
            probabilities = answer(frame)
            spent_s += time.perf_counter() - started_at
            correct.append(probabilities.argmax() == target)
        accuracies.append(float(np.mean(correct)))
        speeds.append(len(correct) / spent_s)
    mib = [program.ByteSize() / (1 << 20) for program in (before, after)]
    return Cost(reduction.precision, len(correct), *accuracies, *mib, *speeds)


def _frames(images: ImageDirectory, spec: ClassifierSpec, at_most: int) -> Iterator[tuple[int, np.ndarray]]:
    """Class index and framed image (1, 3, H, W) of images spread evenly; unreadable ones are passed over."""
    for index in evenly_spaced(len(images), at_most):
        try:
            frame = question(images.path(index).read_bytes(), "tensor", spec)
        except UnreadableImageError:
            continue
        yield int(images.class_indices[index]), frame
