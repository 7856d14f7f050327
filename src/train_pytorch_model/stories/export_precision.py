"""An exported ONNX network in float16 or int8, and what that costs on labelled images."""

import copy
import math
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
from train_pytorch_model.words.errors import ParameterError, parameter

CALIBRATED = 0.25  # fraction of the images whose activations are seen
MAX_CALIBRATED = 300  # of them: the range of each changes little with more


@dataclass(frozen=True)
class Cost:
    """Of another arithmetic, on labelled images; the speed is the network's alone, an image at a time."""

    precision: Literal["float16", "int8"]
    calibrated: int
    """Images of the calibration, which are not among those measured."""
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
        others = f" other than the {self.calibrated:,} of the calibration" if self.calibrated else ""
        return (
            f"{self.precision}: accuracy {self.accuracy:.1%} of {self.images:,} images{others}, before"
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


def quantize(
    network: onnx.ModelProto, images: ImageDirectory, indices: np.ndarray, spec: ClassifierSpec
) -> onnx.ModelProto:
    """Static quantization in int8, by pairs of QuantizeLinear and DequantizeLinear.

    Weights have a scale for each channel, activations the range that they have on the images. Raises
    `ParameterError` if none can be read.
    """
    (taken,) = network.graph.input
    frames = ({taken.name: frame} for _, frame in _frames(images, indices, spec))

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(frames, None)

    with tempfile.TemporaryDirectory() as folder:
        original, prepared, quantized = (Path(folder, f"{number}.onnx") for number in range(3))
        onnx.save(network, original)
        quant_pre_process(original, prepared, skip_symbolic_shape=True)
        quantize_static(prepared, quantized, Reader(), per_channel=True)
        return onnx.load(quantized)


def calibrated(images: ImageDirectory) -> np.ndarray:
    """The images that `quantize` may see, spread evenly: one at least, and never all of several."""
    return evenly_spaced(len(images), min(MAX_CALIBRATED, math.ceil(CALIBRATED * len(images))))


def measure(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    reduction: Reduction,
    seen: np.ndarray,
    spec: ClassifierSpec,
) -> Cost:
    """Run both programs, which take framed images, on all images but those `seen`, or on a single one.

    Raises `ParameterError` if none can be read.
    """
    others = np.setdiff1d(np.arange(len(reduction.images)), seen)
    answers, correct, spent_s, count = [run_onnx(before), run_onnx(after)], [0, 0], [0.0, 0.0], 0
    for target, frame in _frames(reduction.images, others if len(others) else seen, spec):
        count += 1
        for number, answer in enumerate(answers):
            started_at = time.perf_counter()
            probabilities = answer(frame)
            spent_s[number] += time.perf_counter() - started_at
            correct[number] += int(probabilities.argmax() == target)
    mib = [program.ByteSize() / (1 << 20) for program in (before, after)]
    accuracies, speeds = [hits / count for hits in correct], [count / each_s for each_s in spent_s]
    num_seen = len(seen) if len(others) else 0
    return Cost(reduction.precision, num_seen, count, *accuracies, *mib, *speeds)


def _frames(
    images: ImageDirectory, indices: np.ndarray, spec: ClassifierSpec
) -> Iterator[tuple[int, np.ndarray]]:
    """Class index and framed image (1, 3, H, W) of those that can be read, or `ParameterError` for none."""
    is_empty = True
    for index in indices:
        try:
            frame = question(images.path(index).read_bytes(), "tensor", spec)
        except UnreadableImageError:
            continue
        is_empty = False
        yield int(images.class_indices[index]), frame
    if is_empty:
        raise ParameterError(
            f"{parameter('calibration')} {images.root}: none of the {len(indices):,} images that were"
            " tried can be read. Give others."
        )
