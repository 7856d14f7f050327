"""Whether an exported program says what the served model says, of images of mixed sizes."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from train_pytorch_model.config.wording import counted
from train_pytorch_model.export.metadata import Input
from train_pytorch_model.export.runtime import Program
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.image_classifier.spec import ClassifierSpec

MIN_SAME_LABEL = 0.95  # of images of mixed sizes
CLOSE = 0.01  # of each probability: if the label differs then, it was a close call
PAINTED_SIZES = (
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
class Check:
    """The result of a comparison with the served model; the file's metadata have these names."""

    source: str
    images: int
    same_label: int
    close_calls: int  # of the other labels: no probability of the image differs by over `CLOSE`
    largest_difference: float  # of a probability

    def __str__(self) -> str:
        labels = counted(self.same_label, "label", "labels")
        close_calls = ""
        if self.close_calls:
            close_calls = f", {counted(self.close_calls, 'close call', 'close calls')}"
        return (
            f"{labels} of {self.images:,} ({self.source}) as served{close_calls}, largest"
            f" difference of a probability {self.largest_difference:.1e}"
        )

    @property
    def predicts_as_served(self) -> bool:
        """Whether enough images have the served model's label, or almost its probabilities."""
        return self.same_label + self.close_calls >= MIN_SAME_LABEL * self.images


def check(
    program: Program, classifier: ImageClassifier, input_kind: Input, paths: Sequence[Path]
) -> Check:
    """Compare the program with the served model on those of the images that it can read.

    Without paths they are painted ones. The input `file` takes JPEG and PNG only.
    """
    files = (path.read_bytes() for path in paths) if paths else _paint()
    answers = classifier.spec.answers
    num_images = 0
    num_same = 0
    num_close = 0
    largest = 0.0
    for file in files:
        if input_kind == "file" and not file.startswith(FILE_STARTS):
            continue
        try:
            frame = _frame(file, classifier.spec)
            question = question_of(file, input_kind, classifier.spec)
        except UnreadableImageError:
            continue
        served, _ = classifier.predict(torch.from_numpy(np.stack([frame])))
        answered = program(question)
        num_images += 1
        is_same = bool((answers.marks(served) == answers.marks(answered)).all())
        difference = float(np.abs(served - answered).max())
        num_same += is_same
        num_close += not is_same and difference <= CLOSE
        largest = max(largest, difference)
    source = "photographs" if paths else "painted images"
    return Check(source, num_images, num_same, num_close, largest)


def question_of(file: bytes, input_kind: Input, spec: ClassifierSpec) -> np.ndarray:
    """Return what a program with that input is asked of an image file, uint8.

    Raises `UnreadableImageError`.
    """
    if input_kind == "file":
        return np.frombuffer(file, np.uint8)
    if input_kind == "image":
        return np.array(decode(io.BytesIO(file), colours=spec.framing.colours))
    planes = _frame(file, spec).transpose(2, 0, 1)
    return np.ascontiguousarray(planes[None])


def _frame(file: bytes, spec: ClassifierSpec) -> np.ndarray:
    """Return the pixels that the served model sees, (H, W, 3), uint8."""
    framing = spec.framing
    return view(read_pixels(io.BytesIO(file), framing.short_side, framing.colours), framing)


def _paint() -> Iterator[bytes]:
    """Yield photograph-like files of mixed sizes: blots of colour, JPEG and PNG in turn."""
    for index, size in enumerate(PAINTED_SIZES * 3):
        blots = np.random.default_rng(index).integers(0, 256, (5 + index, 7, 3), dtype=np.uint8)
        image = Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG" if index % 2 == 0 else "PNG")
        yield buffer.getvalue()
