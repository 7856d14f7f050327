"""The network in 8-bit integers, and what that costs on labelled images."""

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.export.checks import question_of
from train_pytorch_model.export.runtime import load_program
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.answers import Answers
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.spec import ClassifierSpec

if TYPE_CHECKING:
    import onnx

CALIBRATED = 0.25  # fraction of the images whose activations are seen
MAX_CALIBRATED = 300  # of them: the range of each changes little with more


@dataclass(frozen=True)
class Quantization:
    """A request for int8: the images that calibrate and measure it, and what it may cost."""

    images: ImageDirectory  # labelled, with the model's categories
    max_accuracy_loss: float  # points


@dataclass(frozen=True)
class Cost:
    """Of int8, on labelled images; the file's metadata have these names.

    The speed is the network's alone, an image at a time.
    """

    precision: str
    calibrated: int  # images of the calibration, which are not among those measured
    images: int
    accuracy_before: float
    accuracy: float
    mib_before: float
    mib: float
    images_per_second_before: float
    images_per_second: float

    @property
    def accuracy_loss(self) -> float:
        """The points of accuracy that are lost."""
        return 100 * (self.accuracy_before - self.accuracy)

    def __str__(self) -> str:
        others = ""
        if self.calibrated:
            others = f" other than the {self.calibrated:,} of the calibration"
        return (
            f"{self.precision}: accuracy {self.accuracy:.1%} of {self.images:,} images{others},"
            f" before {self.accuracy_before:.1%}; {self.mib:.1f} MiB, before {self.mib_before:.1f};"
            f" {self.images_per_second:.0f} images/s on this machine, before"
            f" {self.images_per_second_before:.0f}"
        )


def quantize(
    network: "onnx.ModelProto", images: ImageDirectory, spec: ClassifierSpec
) -> tuple["onnx.ModelProto", np.ndarray]:
    """Quantize a network statically to int8, by pairs of QuantizeLinear and DequantizeLinear.

    Weights have a scale for each channel, activations the range that they have on some of the
    images, whose indices are returned: one at least, and never all of several. Raises
    `ParameterError` if none can be read.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    num_calibrated = min(MAX_CALIBRATED, math.ceil(CALIBRATED * len(images)))
    calibrated = evenly_spaced(len(images), num_calibrated)
    (only_input,) = network.graph.input
    inputs = ({only_input.name: frame} for _, frame in _frames_of(images, calibrated, spec))

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(inputs, None)

    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder, "original.onnx")
        prepared = Path(folder, "prepared.onnx")
        quantized = Path(folder, "quantized.onnx")
        onnx.save(network, original)
        quant_pre_process(original, prepared, skip_symbolic_shape=True)
        quantize_static(prepared, quantized, Reader(), per_channel=True)
        return onnx.load(quantized), calibrated


@dataclass
class _Trial:
    """A program's correct predictions, and the seconds that they took."""

    model: "onnx.ModelProto"
    answers: Answers
    num_correct: int = 0
    spent_s: float = 0.0

    def __post_init__(self) -> None:
        self._program = load_program(self.model)

    def predict(self, frame: np.ndarray, truth: np.ndarray) -> None:
        started_at = time.perf_counter()
        probabilities = self._program(frame)
        self.spent_s += time.perf_counter() - started_at
        self.num_correct += int((self.answers.marks(probabilities) == truth).all())

    @property
    def mib(self) -> float:
        num_bytes: int = self.model.ByteSize()
        return num_bytes / (1 << 20)


def measure_cost(
    original: "onnx.ModelProto",
    quantized: "onnx.ModelProto",
    images: ImageDirectory,
    calibrated: np.ndarray,
    spec: ClassifierSpec,
) -> Cost:
    """Run both programs on the images that have not calibrated one, or on the only image.

    Raises `ParameterError` if none can be read.
    """
    measured = np.setdiff1d(np.arange(len(images)), calibrated)
    num_calibrated = len(calibrated)
    if not len(measured):
        measured = calibrated
        num_calibrated = 0
    before = _Trial(original, spec.answers)
    after = _Trial(quantized, spec.answers)
    count = 0
    for index, frame in _frames_of(images, measured, spec):
        truth = images.marks(np.array([index]))
        count += 1
        before.predict(frame, truth)
        after.predict(frame, truth)
    return Cost(
        precision="int8",
        calibrated=num_calibrated,
        images=count,
        accuracy_before=before.num_correct / count,
        accuracy=after.num_correct / count,
        mib_before=before.mib,
        mib=after.mib,
        images_per_second_before=count / before.spent_s,
        images_per_second=count / after.spent_s,
    )


def _frames_of(
    images: ImageDirectory, indices: np.ndarray, spec: ClassifierSpec
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield index and framed image (1, 3, H, W) of those that can be read.

    Raises `ParameterError` for none.
    """
    is_empty = True
    for index in indices:
        with suppress(UnreadableImageError):
            frame = question_of(images.path(index).read_bytes(), "tensor", spec)
            is_empty = False
            yield int(index), frame
    if is_empty:
        raise ParameterError(
            f"{parameter('calibration')} {images.root}: none of the {len(indices):,} images that"
            " were tried can be read. Give others."
        )
