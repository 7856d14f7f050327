"""Whether an exported program says what the served model says, of images of mixed sizes.

And the network in float16 or int8, with what that costs on labelled images.
"""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from PIL import Image

from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.image_classifier.spec import ClassifierSpec

if TYPE_CHECKING:
    import onnx


Input = Literal["tensor", "image", "file"]
Answer = Callable[[np.ndarray], np.ndarray]  # an exported program: input → (1, categories), float32

OUTPUT = "probabilities"
PAINTED = (
    (640, 480),
    (480, 640),
    (1200, 900),
    (333, 500),
    (64, 64),
    (37, 90),
    (224, 224),
    (700, 101),
)
FILE_STARTS = (b"\xff\xd8\xff", b"\x89PNG")  # of what onnxruntime-extensions decodes


@dataclass(frozen=True)
class Reduction:
    """Another precision than float32, what it is measured on, and what it may cost."""

    precision: Literal["float16", "int8"]
    images: ImageDirectory  # labelled, with the model's categories
    max_lost_points: float


@dataclass(frozen=True)
class Check:
    """What a comparison with the served model found."""

    source: str
    images: int
    same_label: int
    largest_difference: float  # of a probability

    def __str__(self) -> str:
        return (
            f"{counted(self.same_label, 'label', 'labels')} of {self.images:,} ({self.source}) as"
            " served,"
            f" largest difference of a probability {self.largest_difference:.1e}"
        )


@dataclass(frozen=True)
class Cost:
    """Of another arithmetic, on labelled images; the speed is the network's alone, an image at a
    time."""

    precision: Literal["float16", "int8"]
    calibrated: int  # images of the calibration, which are not among those measured
    images: int
    accuracy_before: float
    accuracy: float
    mib_before: float
    mib: float
    images_per_second_before: float
    images_per_second: float

    def __str__(self) -> str:
        others = (
            f" other than the {self.calibrated:,} of the calibration" if self.calibrated else ""
        )
        return (
            f"{self.precision}: accuracy {self.accuracy:.1%} of {self.images:,} images{others},"
            " before"
            f" {self.accuracy_before:.1%}; {self.mib:.1f} MiB, before {self.mib_before:.1f};"
            f" {self.images_per_second:.0f} images/s on this machine, before"
            f" {self.images_per_second_before:.0f}"
        )


def run_onnx(model: "onnx.ModelProto") -> Answer:
    """The program, in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Idle threads would compute on, beside another program and whatever else the machine does.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if any(used.domain == "com.microsoft.extensions" for used in model.opset_import):
        import onnxruntime_extensions

        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    program, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(program, options, providers=providers)
    (taken,) = session.get_inputs()
    return lambda value: session.run([OUTPUT], {taken.name: value})[0]


def check(answer: Answer, classifier: ImageClassifier, kind: Input, paths: Sequence[Path]) -> Check:
    """Compare the program with the served model on readable images (`file`: JPEG, PNG), or painted
    ones.
    """
    images = same = 0
    largest = 0.0
    for file in (path.read_bytes() for path in paths) if paths else _painted():
        if kind == "file" and not file.startswith(FILE_STARTS):
            continue
        try:
            served, _ = classifier.predict(
                torch.from_numpy(np.stack([_framed(file, classifier.spec)]))
            )
            answered = answer(question(file, kind, classifier.spec))
        except UnreadableImageError:
            continue
        images += 1
        same += int(served.argmax() == answered.argmax())
        largest = max(largest, float(np.abs(served - answered).max()))
    return Check("photographs" if paths else "painted images", images, same, largest)


def question(file: bytes, kind: Input, spec: ClassifierSpec) -> np.ndarray:
    """What a program with that input is asked of an image file, uint8.

    Raises `UnreadableImageError`.
    """
    if kind == "file":
        return np.frombuffer(file, np.uint8)
    if kind == "image":
        return np.array(decode(io.BytesIO(file), colours=spec.framing.colours))
    return np.ascontiguousarray(_framed(file, spec).transpose(2, 0, 1)[None])


def _framed(file: bytes, spec: ClassifierSpec) -> np.ndarray:
    """The pixels that the served model sees, (H, W, 3), uint8."""
    framing = spec.framing
    return view(read_pixels(io.BytesIO(file), framing.short_side, framing.colours), framing)


def _painted() -> Iterator[bytes]:
    """Photograph-like files of mixed sizes: blots of colour, JPEG and PNG in turn."""
    for index, (width, height) in enumerate(PAINTED * 3):
        blots = np.random.default_rng(index).integers(0, 256, (5 + index, 7, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        image = Image.fromarray(blots).resize((width, height), Image.Resampling.BICUBIC)
        image.save(buffer, ("JPEG", "PNG")[index % 2])
        yield buffer.getvalue()


def measure(
    programs: Sequence["onnx.ModelProto"],
    reduction: Reduction,
    seen: np.ndarray,
    spec: ClassifierSpec,
) -> Cost:
    """Run two on all framed images but those `seen`, or a single one.

    Raises `ParameterError` for none.
    """
    others = np.setdiff1d(np.arange(len(reduction.images)), seen)
    answers, correct, spent_s, count = list(map(run_onnx, programs)), [0, 0], [0.0, 0.0], 0
    for target, frame in frames_of(reduction.images, others if len(others) else seen, spec):
        count += 1
        for number, answer in enumerate(answers):
            started_at = time.perf_counter()
            probabilities = answer(frame)
            spent_s[number] += time.perf_counter() - started_at
            correct[number] += int(probabilities.argmax() == target)
    mib = [program.ByteSize() / (1 << 20) for program in programs]
    accuracies, speeds = [hits / count for hits in correct], [count / each_s for each_s in spent_s]
    num_seen = len(seen) if len(others) else 0
    return Cost(reduction.precision, num_seen, count, *accuracies, *mib, *speeds)


def frames_of(
    images: ImageDirectory, at: np.ndarray, spec: ClassifierSpec
) -> Iterator[tuple[int, np.ndarray]]:
    """Class index and framed image (1, 3, H, W) of those that can be read, or `ParameterError` for
    none.
    """
    is_empty = True
    for index in at:
        with suppress(UnreadableImageError):
            frame = question(images.path(index).read_bytes(), "tensor", spec)
            is_empty = False
            yield int(images.class_indices[index]), frame
    if is_empty:
        raise ParameterError(
            f"{parameter('calibration')} {images.root}: none of the {len(at):,} images that were"
            " tried can be read. Give others."
        )
