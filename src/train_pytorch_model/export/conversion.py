"""A network as ONNX, with normalization and softmax, and its difference from PyTorch's."""

import importlib.util
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from train_pytorch_model import errors
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.export.metadata import Input
from train_pytorch_model.export.runtime import OUTPUT, load_program
from train_pytorch_model.image_classifier.spec import ClassifierSpec

if TYPE_CHECKING:
    import onnx

OPSET = 20  # the newest that onnxruntime 1.17 and later support
TOLERANCE = 1e-4  # largest allowed difference of a probability from PyTorch's
# Two batch sizes: an export may be specialized to the one it was traced with.
CHECKED_BATCHES = (1, 3)
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
INPUT = "images"


class ExportError(errors.UserError):
    """The exported program does not compute what the model does."""

    exit_status = 4


def require_packages(input_kind: Input) -> None:
    """Raise `ParameterError` if packages are missing that the export needs."""
    names = list(ONNX_PACKAGES)
    if input_kind == "file":
        names.append("onnxruntime_extensions")
    missing = [name.replace("_", "-") for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise errors.ParameterError(
            f"{parameter('format')} onnx needs {', '.join(missing)}."
            f" Install them: pip install {' '.join(missing)}"
        )


def to_onnx(program: nn.Module, spec: ClassifierSpec) -> "onnx.ModelProto":
    """Return the program, which takes images (N, 3, H, W), uint8, as ONNX for any N."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own internals
        exported = torch.onnx.export(
            program,
            (_noise(2, spec),),
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    assert exported is not None
    model: onnx.ModelProto = exported.model_proto
    return model


def check_against_pytorch(
    exported: "onnx.ModelProto", program: nn.Module, spec: ClassifierSpec, output: Path
) -> float:
    """Return the largest difference of a probability. Raises `ExportError` above `TOLERANCE`."""
    onnx_program = load_program(exported)
    differences = []
    with torch.inference_mode():
        for count in CHECKED_BATCHES:
            images = _noise(count, spec)
            probabilities = torch.from_numpy(onnx_program(images.numpy()))
            differences.append((probabilities - program(images)).abs().max())
    difference = torch.stack(differences).max().item()
    if not difference <= TOLERANCE:  # not finite either
        raise ExportError(
            f"The exported program differs from the model by {difference:.2g} in a probability;"
            f" {TOLERANCE:g} is allowed. {output} was not written."
        )
    return difference


def _noise(count: int, spec: ClassifierSpec) -> Tensor:
    """Return uniform noise, the same in every call: (count, 3, H, W), uint8, 0 to 255."""
    generator = torch.Generator().manual_seed(count)
    shape = (count, 3, spec.framing.height, spec.framing.width)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
