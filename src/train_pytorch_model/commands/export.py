"""`export`: write a trained model as one file for other runtimes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from train_pytorch_model.commands.program import OptionalInt, OptionalPath, Switch
from train_pytorch_model.formats.outputs import check_new
from train_pytorch_model.inputs.any_depth import open_images_at_any_depth
from train_pytorch_model.inputs.opening import open_trained_model
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.words.errors import ParameterError

SUFFIXES = {"onnx": (".onnx",), "torch": (".pt2", ".pt", ".pth")}
"""Of the files of each format; others are accepted as well."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a trained model to ONNX or torch.export, verified against PyTorch."""

    EXAMPLE: ClassVar[str] = "--trained-model trained --format onnx --output flowers.onnx"

    trained_model: Path
    """Trained model directory, as written by train."""

    kind: Annotated[Literal["onnx", "torch"], tyro.conf.arg(name="format")]
    """onnx for ONNX Runtime and other runtimes; torch for torch.export.load."""

    output: Path
    """File to write; must not exist."""

    input: Literal["tensor", "image", "file"] = "tensor"
    """What the ONNX program takes: a tensor of framed images; an image, uint8 (height, width, 3), of any
    size; or a file, the bytes of a JPEG or PNG, which needs onnxruntime-extensions."""

    images: OptionalPath = None
    """Folder of images of mixed sizes, such as the validation images, on which the ONNX program is compared
    with the served model; by default painted ones."""

    image_size: OptionalInt = None
    """Side of the input in px. Only for model directories from the designer, which do not record it."""

    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the options, export, and print the largest difference from PyTorch."""
        set_up(quiet=self.quiet)
        self._check_suffix()
        check_new(self.output)
        if self.kind == "torch" and (self.input != "tensor" or self.images):
            raise ParameterError("--input and --images are for --format onnx; the format is torch.")
        model, spec = open_trained_model(self.trained_model, self.image_size)
        paths = []
        if self.images is not None:
            opened, _ = open_images_at_any_depth(self.images, "--images")
            paths = [opened.path(index) for index in range(len(opened))]

        from train_pytorch_model.stories import export as exporting

        difference, check = exporting.export(model, spec, self.kind, self.output, self.input, paths)
        logger.info(
            f"{self.output}: {spec.architecture}, {len(spec.categories)} categories,"
            f" {spec.framing.height} x {spec.framing.width} px"
            + (f", opset {exporting.OPSET}" if self.kind == "onnx" else "")
            + f"; its probabilities are within {difference:.1e} of PyTorch's"
        )
        if check is not None:
            logger.info(f"Input: {exporting.INPUTS[self.input]}")
            logger.info(f"Predictions: {check}")

    def _check_suffix(self) -> None:
        """Raise `ParameterError` if the output is named like a file of the other format."""
        for kind, suffixes in SUFFIXES.items():
            if kind != self.kind and self.output.suffix.lower() in suffixes:
                right = self.output.with_suffix(SUFFIXES[self.kind][0])
                raise ParameterError(
                    f"--output {self.output} is named like a file of --format {kind}, and the format is"
                    f" {self.kind}. Give --output {right}, or --format {kind}."
                )
