"""`export`: write a trained model as one ONNX file for other runtimes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from train_pytorch_model.config.options import OptionalInt, OptionalPath, Switch, shown_as
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.export.output_file import check_file
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.inputs import scoring
from train_pytorch_model.machine.console import logger, set_up

SUFFIXES_OF_PYTORCH = (".pt2", ".pt", ".pth")
QUANTIZE_AND_CALIBRATION = (
    "--calibration, labelled images such as the validation images, goes with --quantize int8, and"
    " that with it"
)


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a trained model to ONNX, verified against PyTorch."""

    EXAMPLE = "--trained-model trained --format onnx --output flowers.onnx"

    trained_model: Path
    """Trained model directory, as written by train."""
    output: Path
    """File to write; must not exist."""
    format: Literal["onnx"] = "onnx"
    """onnx for ONNX Runtime and other runtimes."""
    input: Literal["tensor", "image", "file"] = "tensor"
    (
        "What the ONNX program takes: a tensor of framed images; an image, uint8 (height, width,"
        " 3), of any"
        "\n    size; or a file, the bytes of a JPEG or PNG, which needs onnxruntime-extensions."
    )
    images: OptionalPath = None
    (
        "Folder of images of mixed sizes, such as the validation images, on which the ONNX program"
        " is compared"
        "\n    with the served model; by default painted ones."
    )
    quantize: Annotated[Literal["int8"] | None, shown_as("{int8}")] = None
    (
        "int8 for an ONNX network of 8-bit integers, with the ranges that its activations have on"
        " the images of"
        "\n    --calibration."
    )
    calibration: OptionalPath = None
    """Labelled images, on which the accuracy before and after --quantize is measured."""
    max_accuracy_loss: float = 1.0
    """Points of accuracy that --quantize may cost; more is an error."""
    image_size: OptionalInt = None
    (
        "Side of the input in px. Only for model directories from the designer, which do not"
        " record it."
    )
    overwrite: Switch = False
    """Replace the output, if export has written it, once the new file is complete."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the options, export, and print the largest difference from PyTorch."""
        set_up(quiet=self.quiet)
        self._check_options()
        model, spec = scoring.open_trained_model(self.trained_model, self.image_size)
        images = self._images_to_compare()
        calibration = self._calibration()
        if calibration is not None and not images:
            images = calibration.paths()

        from train_pytorch_model.export.conversion import OPSET
        from train_pytorch_model.export.metadata import INPUTS
        from train_pytorch_model.export.quantizing import Quantization
        from train_pytorch_model.stories.export import export

        quantization = None
        if calibration is not None:
            quantization = Quantization(calibration, self.max_accuracy_loss)
        difference, check = export(
            model, spec, self.output, self.input, images, quantization, self.overwrite
        )
        logger.info(
            f"{self.output}: {spec.architecture}, {len(spec.categories)} categories,"
            f" {spec.framing.height} x {spec.framing.width} px, opset {OPSET}; its probabilities"
            f" are within {difference:.1e} of PyTorch's"
        )
        logger.info(f"Input: {INPUTS[self.input]}")
        logger.info(f"Predictions: {check}")

    def _check_options(self) -> None:
        """Raise `ParameterError` for options that do not go together, and for a wrong output."""
        if self.output.suffix.lower() in SUFFIXES_OF_PYTORCH:
            raise ParameterError(
                f"--output {self.output} is named like a file of PyTorch, and export writes ONNX."
                f" Give --output {self.output.with_suffix('.onnx')}."
            )
        check_file(self.output, self.overwrite)
        if self.quantize and not self.calibration:
            raise ParameterError(f"{QUANTIZE_AND_CALIBRATION}; it is missing.")
        if self.calibration and not self.quantize:
            raise ParameterError(f"{QUANTIZE_AND_CALIBRATION}; that is not given.")

    def _images_to_compare(self) -> list[Path]:
        """Return the images of --images; none if the option is not given."""
        if self.images is None:
            return []
        images, _ = scoring.open_images_at_any_depth(self.images, "--images")
        return images.paths()

    def _calibration(self) -> ImageDirectory | None:
        """Return the images of --calibration; None if the option is not given."""
        if self.calibration is None:
            return None
        return scoring.open_evaluation_inputs(self.trained_model, self.calibration).images
