"""What an exported file says of itself: its categories, its input, and how images are prepared."""

import json
from typing import Literal

from train_pytorch_model import __version__
from train_pytorch_model.image_classifier.spec import ClassifierSpec

Input = Literal["tensor", "image", "file"]

INPUTS = {
    "tensor": "uint8 RGB, (N, 3, height, width), 0 to 255, EXIF orientation applied",
    "image": "uint8 RGB, (any height, any width, 3), 0 to 255, EXIF orientation applied",
    "file": "the bytes of a JPEG or PNG, uint8; EXIF orientation is applied, transparency is"
    " ignored, and interlaced PNG is not supported",
}
PRODUCER = "train-pytorch-model "  # begins a value that each exported file has
RESIZES = {
    "crop": "aspect ratio kept, then centre crop",
    "pad": "aspect ratio kept, then padding with the pixels of the edges",
    "squash": "aspect ratio not kept",
}


def metadata(spec: ClassifierSpec, input_kind: Input) -> dict[str, str]:
    """Return the metadata of the file, name → text. Values that are not text are JSON."""
    resizing_is = "none at this size" if input_kind == "tensor" else "inside the program"
    preprocessing = {
        "input": INPUTS[input_kind],
        "height": spec.framing.height,
        "width": spec.framing.width,
        "crop_fraction": spec.framing.crop_fraction,
        "framing": spec.framing.mode,
        "resize": f"bilinear, antialiased, {RESIZES[spec.framing.mode]}; {resizing_is}",
        "mean": spec.mean,
        "std": spec.std,
        "normalized": "inside the program",
    }
    return {
        "producer": f"{PRODUCER}{__version__}",
        "architecture": spec.architecture,
        "class_names": json.dumps(spec.categories),
        **spec.answers.metadata(),
        "preprocessing": json.dumps(preprocessing),
    }
