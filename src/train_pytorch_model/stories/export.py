"""Export a trained directory as one ONNX file for other runtimes.

The exported program takes decoded uint8 RGB images (N, 3, H, W), framed to the model's size, for
any N, or one image of any size, or its file; normalization and softmax, or the sigmoid of a model
of any number of categories, are part of it. It returns
probabilities (N, categories), float32.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.export.checks import Check, check
from train_pytorch_model.export.conversion import (
    ExportError,
    check_against_pytorch,
    require_packages,
    to_onnx,
)
from train_pytorch_model.export.metadata import Input, metadata
from train_pytorch_model.export.output_file import owning_file
from train_pytorch_model.export.quantizing import Cost, Quantization, measure_cost, quantize
from train_pytorch_model.export.runtime import load_program
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.image_classifier.classifier import (
    ImageClassifier,
    Normalize,
    activation_of,
)
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.machine.console import logger
from train_pytorch_model.networks.build import build_model

if TYPE_CHECKING:
    import onnx


def export(
    model: ModelDirectory,
    spec: ClassifierSpec,
    output: Path,
    input_kind: Input = "tensor",
    images: Sequence[Path] = (),
    quantization: Quantization | None = None,
    overwrite: bool = False,
) -> tuple[float, Check]:
    """Write the file after its checks, and return their results.

    The first is the largest difference of a probability from PyTorch's, before a `quantization`;
    the second compares the file with the served model, on `images` or painted ones. Raises
    `ExportError`, `ParameterError` if the ONNX packages are missing, `OutputDirectoryError`, and
    `InvalidModelDirectoryError` for weights that do not fit.
    """
    require_packages(input_kind)
    import onnx

    network = build_model(model, spec.categories)
    program = nn.Sequential(Normalize(spec.mean, spec.std), network, activation_of(spec)).eval()
    with owning_file(output, overwrite) as unfinished:
        exported = to_onnx(program, spec)
        difference = check_against_pytorch(exported, program, spec, output)
        described = metadata(spec, input_kind)

        if quantization is not None:
            exported, cost = _quantize(exported, spec, quantization, output)
            described["reduction"] = json.dumps(asdict(cost))
        if input_kind != "tensor":
            from train_pytorch_model.export.framing import prepend_framing

            exported = prepend_framing(exported, spec.framing, input_kind)

        served = ImageClassifier(spec, network, torch.device("cpu"))
        comparison = check(load_program(exported), served, input_kind, images)
        if not comparison.images:
            raise ParameterError(
                f"{parameter('images')}: none can be read by a program that takes the input"
                f" {input_kind}, so it cannot be checked. {output} was not written."
            )
        # What quantization may change is decided by its accuracy.
        if quantization is None and not comparison.predicts_as_served:
            raise ExportError(
                f"The exported program does not predict as served: {comparison}. {output} was not"
                " written."
            )
        described["check"] = json.dumps(asdict(comparison))
        onnx.helper.set_model_props(exported, described)
        onnx.save(exported, unfinished)
    return difference, comparison


def _quantize(
    exported: "onnx.ModelProto", spec: ClassifierSpec, quantization: Quantization, output: Path
) -> tuple["onnx.ModelProto", Cost]:
    """Return the network in int8, and its cost. Raises `ExportError` if that is too high."""
    quantized, calibrated = quantize(exported, quantization.images, spec)
    cost = measure_cost(exported, quantized, quantization.images, calibrated, spec)
    logger.info(f"In {cost}")
    if cost.accuracy_loss > quantization.max_accuracy_loss:
        raise ExportError(
            f"int8 costs {cost.accuracy_loss:.1f} points of accuracy;"
            f" {parameter('max_accuracy_loss')} is {quantization.max_accuracy_loss:g}. {output} was"
            " not written."
        )
    return quantized, cost
