"""Export a trained directory as one file for other runtimes: ONNX or torch.export.

The exported program takes decoded uint8 RGB images (N, 3, H, W), framed to the model's size, for
any N, or as ONNX one image of any size, or its file; normalization and softmax are part of it. It
returns probabilities (N, categories), float32.
"""

import importlib.util
import io
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from train_pytorch_model import __version__, errors
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import OutputDirectoryError, ParameterError
from train_pytorch_model.export import checks, quantizing
from train_pytorch_model.export.checks import OUTPUT, Check, Input, Reduction, run_onnx
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.formats.outputs import check_new
from train_pytorch_model.image_classifier.classifier import ImageClassifier, Normalize
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.build import build_model

if TYPE_CHECKING:
    import onnx

Predict = Callable[
    [Tensor], Tensor
]  # uint8 images (N, 3, H, W) → probabilities (N, categories), float32

OPSET = 20  # the newest that onnxruntime 1.17 and later support
TOLERANCE = 1e-4  # largest allowed difference of a probability from PyTorch's
CHECKED_BATCHES = (
    1,
    3,
)  # two batch sizes: an export may be specialized to the one it was traced with
MIN_SAME_LABEL = 0.95  # of images of mixed sizes; close calls may go the other way
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
INPUT = "images"
INPUTS = {
    "tensor": "uint8 RGB, (N, 3, height, width), 0 to 255, EXIF orientation applied",
    "image": "uint8 RGB, (any height, any width, 3), 0 to 255, EXIF orientation applied",
    "file": "the bytes of a JPEG or PNG, uint8; EXIF orientation is applied, transparency is ignored, and"
    " interlaced PNG is not supported",
}
RESIZES = {
    "crop": "aspect ratio kept, then centre crop",
    "pad": "aspect ratio kept, then padding with the pixels of the edges",
    "squash": "aspect ratio not kept",
}


class ExportError(errors.UserError):
    """The exported program does not compute what the model does."""

    exit_status = 4


def export(
    model: ModelDirectory,
    spec: ClassifierSpec,
    kind: Literal["onnx", "torch"],
    output: Path,
    input_kind: Input = "tensor",
    images: Sequence[Path] = (),
    reduction: Reduction | None = None,
) -> tuple[float, Check | None]:
    """Write the file after a check against PyTorch, and return the largest difference of a
    probability.

    For ONNX it is also compared with the served model, on `images` or painted ones. That difference
    is before a `reduction`. Raises `ExportError`, `ParameterError` if the ONNX packages are
    missing, `OutputDirectoryError`, and `InvalidModelDirectoryError` for weights that do not fit.
    """
    extensions = ["onnxruntime_extensions"] if input_kind == "file" else []
    wanted = [*ONNX_PACKAGES, *extensions] if kind == "onnx" else []
    if missing := [name for name in wanted if importlib.util.find_spec(name) is None]:
        names = f"{', '.join(missing)}. Install them: pip install {' '.join(missing)}".replace(
            "_", "-"
        )
        raise ParameterError(f"{parameter('format')} onnx needs {names}")
    network = build_model(model, spec.categories)
    program = nn.Sequential(Normalize(spec.mean, spec.std), network, nn.Softmax(dim=1)).eval()
    with _owning_file(output) as unfinished:
        if kind == "torch":
            return _close(program, _write_torch(program, spec, unfinished), spec, output), None
        import onnx

        exported = _to_onnx(program, spec)
        answer = run_onnx(exported)
        difference = _close(program, lambda x: torch.from_numpy(answer(x.numpy())), spec, output)
        described = metadata(spec, input_kind)
        if reduction is not None:
            exported, described["reduction"] = _reduce(exported, network, spec, reduction, output)
        if input_kind != "tensor":
            from train_pytorch_model.export.framing import prepend_framing

            exported = prepend_framing(exported, spec.framing, input_kind)
        served = ImageClassifier(spec, network, torch.device("cpu"))
        found = checks.check(run_onnx(exported), served, input_kind, images)
        if not found.images:
            raise ParameterError(
                f"{parameter('images')}: none can be read by a program that takes the input"
                f" {input_kind}, so"
                f" it cannot be checked. {output} was not written."
            )
        # What another precision may change is decided by its accuracy.
        if reduction is None and found.same_label < MIN_SAME_LABEL * found.images:
            raise ExportError(
                f"The exported program does not predict as served: {found}. {output} was not"
                " written."
            )
        onnx.helper.set_model_props(exported, described | {"check": json.dumps(asdict(found))})
        onnx.save(exported, unfinished)
    return difference, found


def _reduce(
    exported: "onnx.ModelProto",
    network: nn.Module,
    spec: ClassifierSpec,
    reduction: Reduction,
    output: Path,
) -> tuple["onnx.ModelProto", str]:
    """The network in the other precision, and its cost as JSON.

    Raises `ExportError` if it is too high.
    """
    seen = np.empty(0, np.int64)
    if reduction.precision == "int8":
        reduced, seen = quantizing.quantize(exported, reduction.images, spec)
    else:
        halved = quantizing.Float16(network)
        program = nn.Sequential(Normalize(spec.mean, spec.std), halved, nn.Softmax(dim=1))
        reduced = _to_onnx(program.eval(), spec)
    cost = checks.measure((exported, reduced), reduction, seen, spec)
    logger.info(f"In {cost}")
    lost_points = 100 * (cost.accuracy_before - cost.accuracy)
    if lost_points > reduction.max_lost_points:
        raise ExportError(
            f"{reduction.precision} costs {lost_points:.1f} points of accuracy;"
            f" {parameter('max_accuracy_loss')} is {reduction.max_lost_points:g}. {output} was not"
            " written."
        )
    return reduced, json.dumps(asdict(cost))


def _close(program: nn.Module, predict: Predict, spec: ClassifierSpec, output: Path) -> float:
    """The largest difference of a probability. Raises `ExportError` above `TOLERANCE`."""
    batches = [_images(count, spec) for count in CHECKED_BATCHES]
    with torch.inference_mode():
        differences = [(predict(images) - program(images)).abs().max() for images in batches]
    difference = torch.stack(differences).max().item()
    if not difference <= TOLERANCE:
        raise ExportError(
            f"The exported program differs from the model by {difference:.2g} in a probability;"
            f" {TOLERANCE:g} is allowed. {output} was not written."
        )
    return difference


@contextmanager
def _owning_file(output: Path) -> Iterator[Path]:
    """Own a new file for a `with`, which writes it under another name.

    Raises `OutputDirectoryError`.
    """
    unfinished = output.with_name(output.name + ".unfinished")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.open("xb").close()  # which only one process can
        except FileExistsError as error:
            raise OutputDirectoryError(
                f"{parameter('output')} {output} is being written by another export. If that was"
                " killed,"
                f" delete {unfinished}, or name another file."
            ) from error
        try:
            check_new(output)
            yield unfinished
            unfinished.replace(output)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        problem = (
            errors.UnfinishedOutputError
            if error.errno in errors.DISK_IS_FULL
            else OutputDirectoryError
        )
        raise problem(
            f"{parameter('output')} {output} cannot be written: {error.strerror}."
        ) from error


def metadata(spec: ClassifierSpec, input_kind: Input = "tensor") -> dict[str, str]:
    """The metadata in the file: name → text; values that are not text are JSON."""
    where = "none at this size" if input_kind == "tensor" else "inside the program"
    return {
        "producer": f"train-pytorch-model {__version__}",
        "architecture": spec.architecture,
        "class_names": json.dumps(spec.categories),
        "preprocessing": json.dumps(
            {
                "input": INPUTS[input_kind],
                "height": spec.framing.height,
                "width": spec.framing.width,
                "crop_fraction": spec.framing.crop_fraction,
                "framing": spec.framing.mode,
                "resize": f"bilinear, antialiased, {RESIZES[spec.framing.mode]}; {where}",
                "mean": spec.mean,
                "std": spec.std,
                "normalized": "inside the program",
            }
        ),
    }


def _to_onnx(program: nn.Module, spec: ClassifierSpec) -> "onnx.ModelProto":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own internals
        exported = torch.onnx.export(
            program,
            (_images(2, spec),),
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


def _write_torch(program: nn.Module, spec: ClassifierSpec, path: Path) -> Predict:
    shapes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(program, (_images(2, spec),), dynamic_shapes=shapes)
    buffer = io.BytesIO()  # writing to a full disk, PyTorch aborts the process
    torch.export.save(exported, buffer, extra_files={"metadata.json": json.dumps(metadata(spec))})
    path.write_bytes(buffer.getbuffer())
    with path.open("rb") as file:
        loaded: Predict = torch.export.load(file).module()
    return loaded


def _images(count: int, spec: ClassifierSpec) -> Tensor:
    """The same uniform noise in every call: (count, 3, H, W), uint8, 0 to 255."""
    generator = torch.Generator().manual_seed(count)
    shape = (count, 3, spec.framing.height, spec.framing.width)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
