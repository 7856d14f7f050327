"""`export`: write a trained model as one file for other runtimes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from train_pytorch_model.config.options import OptionalInt, OptionalPath, Switch, shown_as
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.outputs import check_new
from train_pytorch_model.inputs import opening
from train_pytorch_model.machine.console import logger, set_up

SUFFIXES = {"onnx": (".onnx",), "torch": (".pt2", ".pt", ".pth")}
"""Of the files of each format; others are accepted as well."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a trained model to ONNX or torch.export, verified against PyTorch."""

    EXAMPLE = "--trained-model trained --format onnx --output flowers.onnx"

    trained_model: Path
    """Trained model directory, as written by train."""
    kind: Annotated[Literal["onnx", "torch"], tyro.conf.arg(name="format")]
    """onnx for ONNX Runtime and other runtimes; torch for torch.export.load."""
    output: Path
    """File to write; must not exist."""
    input: Literal["tensor", "image", "file"] = "tensor"
    """What the ONNX program takes: a tensor of framed images; an image, uint8 (height, width, 3),
    of any size; or a file, the bytes of a JPEG or PNG, which needs onnxruntime-extensions."""
    images: OptionalPath = None
    """Folder of images of mixed sizes, such as the validation images, on which the ONNX program is
    compared with the served model; by default painted ones."""
    precision: Literal["float32", "float16"] = "float32"
    """Of the ONNX network's numbers; float16 needs --calibration, to measure what it costs."""
    quantize: Annotated[Literal["int8"] | None, shown_as("{int8}")] = None
    """int8 for an ONNX network of 8-bit integers, with the ranges that its activations have on the images of
    --calibration."""
    calibration: OptionalPath = None
    """Labelled images, on which the accuracy before and after --quantize or --precision is
    measured."""
    max_accuracy_loss: float = 1.0
    """Points of accuracy that --quantize or --precision may cost; more is an error."""
    image_size: OptionalInt = None
    """Side of the input in px. Only for model directories from the designer, which do not record
    it."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the options, export, and print the largest difference from PyTorch."""
        set_up(quiet=self.quiet)
        for kind, suffixes in SUFFIXES.items():
            if kind != self.kind and self.output.suffix.lower() in suffixes:
                right = self.output.with_suffix(SUFFIXES[self.kind][0])
                raise ParameterError(
                    f"--output {self.output} is named like a file of --format {kind}, and the"
                    " format is"
                    f" {self.kind}. Give --output {right}, or --format {kind}."
                )
        check_new(self.output)
        reduced = self.quantize or (self.precision if self.precision != "float32" else None)
        self._check_options(reduced)
        model, spec = opening.open_trained_model(self.trained_model, self.image_size)
        paths = []
        if self.images is not None:
            opened, _ = opening.open_images_at_any_depth(self.images, "--images")
            paths = [opened.path(index) for index in range(len(opened))]
        calibration = None
        if self.calibration is not None:
            calibration = opening.open_evaluation_inputs(
                self.trained_model, self.calibration
            ).images
            paths = paths or [calibration.path(index) for index in range(len(calibration))]

        from train_pytorch_model.export.checks import Reduction
        from train_pytorch_model.stories import export as story

        reduction = None
        if reduced and calibration:
            reduction = Reduction(reduced, calibration, self.max_accuracy_loss)
        difference, check = story.export(
            model, spec, self.kind, self.output, self.input, paths, reduction
        )
        logger.info(
            f"{self.output}: {spec.architecture}, {len(spec.categories)} categories,"
            f" {spec.framing.height} x {spec.framing.width} px"
            + (f", opset {story.OPSET}" if self.kind == "onnx" else "")
            + f"; its probabilities are within {difference:.1e} of PyTorch's"
        )
        if check is not None:
            logger.info(f"Input: {story.INPUTS[self.input]}")
            logger.info(f"Predictions: {check}")

    def _check_options(self, reduced: str | None) -> None:
        """Raise `ParameterError` for options that do not go together."""
        if self.kind == "torch" and (self.input != "tensor" or self.images or reduced):
            raise ParameterError(
                "--input, --images, --quantize and --precision are for --format onnx; the format is"
                " torch."
            )
        if self.quantize and self.precision != "float32":
            raise ParameterError(
                "--quantize int8 and --precision float16 exclude each other: give one."
            )
        if bool(reduced) != bool(self.calibration):
            raise ParameterError(
                "--calibration, labelled images such as the validation images, goes with --quantize"
                " int8 or"
                f" --precision float16, and they with it; {'it' if reduced else 'neither'} is"
                f" {'missing' if reduced else 'given'}."
            )
