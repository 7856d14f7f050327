"""Whether an exported program says what the served model says, of images of mixed sizes."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from PIL import Image

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.words.errors import counted

if TYPE_CHECKING:
    import onnx

Input = Literal["tensor", "image", "file"]
Answer = Callable[[np.ndarray], np.ndarray]
"""An exported program: its input → probabilities (1, categories), float32."""

OUTPUT = "probabilities"
EXTENSIONS_DOMAIN = "com.microsoft.extensions"  # of onnxruntime-extensions
PAINTED = ((640, 480), (480, 640), (1200, 900), (333, 500), (64, 64), (37, 90), (224, 224), (700, 101))
FILE_STARTS = (b"\xff\xd8\xff", b"\x89PNG")  # of what onnxruntime-extensions decodes


@dataclass(frozen=True)
class Reduction:
    """Another precision than float32, what it is measured on, and what it may cost."""

    precision: Literal["float16", "int8"]
    images: ImageDirectory
    """Labelled, with the model's categories."""
    max_lost_points: float


@dataclass(frozen=True)
class Check:
    """What a comparison with the served model found."""

    source: str
    images: int
    same_label: int
    largest_difference: float
    """Of a probability."""

    def __str__(self) -> str:
        return (
            f"{counted(self.same_label, 'label', 'labels')} of {self.images:,} ({self.source}) as served,"
            f" largest difference of a probability {self.largest_difference:.1e}"
        )


def run_onnx(model: "onnx.ModelProto") -> Answer:
    """The program, in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Idle threads would compute on, beside another program and whatever else the machine does.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if any(used.domain == EXTENSIONS_DOMAIN for used in model.opset_import):
        import onnxruntime_extensions

        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (taken,) = session.get_inputs()

    def answer(value: np.ndarray) -> np.ndarray:
        probabilities: np.ndarray = session.run([OUTPUT], {taken.name: value})[0]
        return probabilities

    return answer


def check(answer: Answer, classifier: ImageClassifier, kind: Input, paths: Sequence[Path]) -> Check:
    """Compare the program with the served model on the images, or on painted ones if there is none.

    Files that cannot be read are passed over, and with `file` also those that are neither JPEG nor PNG.
    """
    images = same = 0
    largest = 0.0
    for file in (path.read_bytes() for path in paths) if paths else _painted():
        if kind == "file" and not file.startswith(FILE_STARTS):
            continue
        try:
            served = classifier.probabilities(torch.from_numpy(np.stack([_framed(file, classifier.spec)])))
            answered = answer(question(file, kind, classifier.spec))
        except UnreadableImageError:
            continue
        images += 1
        same += int(served.argmax() == answered.argmax())
        largest = max(largest, float(np.abs(served - answered).max()))
    return Check("photographs" if paths else "painted images", images, same, largest)


def question(file: bytes, kind: Input, spec: ClassifierSpec) -> np.ndarray:
    """What a program with that input is asked of an image file, uint8. Raises `UnreadableImageError`."""
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
