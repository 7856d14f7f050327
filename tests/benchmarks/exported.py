"""Exported programs beside the MLflow model, on held-out photographs of mixed sizes and
orientations.
"""

import importlib.util
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnxruntime
import pandas as pd
from PIL import Image

from tests.benchmarks.timing import arguments, machine
from train_pytorch_model.export.checks import question_of
from train_pytorch_model.export.metadata import Input
from train_pytorch_model.export.quantizing import Quantization
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.scoring import open_evaluation_inputs, open_trained_model
from train_pytorch_model.stories.export import export

ORIENTATION = 0x0112
# EXIF orientation → how the upright image is turned before it is saved so.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
SAVED_AS: tuple[
    tuple[str, dict[str, Any]], ...
] = (  # of ten images: most cameras and sites halve the colours' resolution
    *[("JPEG", {"quality": 85, "subsampling": "4:2:0"})] * 6,
    ("JPEG", {"quality": 92, "subsampling": "4:4:4", "progressive": True}),
    ("JPEG", {"quality": 75, "subsampling": "4:2:2"}),
    *[("PNG", {"compress_level": 1})] * 2,
)
PROGRAMS: dict[str, tuple[Input, bool]] = {  # input, and whether it is quantized
    "file": ("file", False),
    "image": ("image", False),
    "tensor": ("tensor", False),
    "tensor-int8": ("tensor", True),
}


def main() -> None:
    """Print the agreement with the MLflow model, the accuracy, the size and the speed of each
    program.
    """
    parser = arguments(__doc__, images=False)
    parser.add_argument("--trained-model", type=Path, required=True)
    parser.add_argument(
        "--images", type=Path, required=True, help="class folders that training has not seen"
    )
    parser.add_argument("--calibration", type=Path, required=True, help="others, for int8")
    parser.add_argument(
        "--count", type=int, default=300, help="images compared, made of those in --images"
    )
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        held_out = open_evaluation_inputs(chosen.trained_model, chosen.images).images
        files, targets = vary(held_out, chosen.count)
        model, spec = open_trained_model(chosen.trained_model, None)
        calibration = open_evaluation_inputs(chosen.trained_model, chosen.calibration).images
        served = mlflow.pyfunc.load_model(str(chosen.trained_model)).predict(
            pd.DataFrame({"image": files})
        )
        expected = np.asarray(served.filter(like="Scored Probabilities"), dtype=float)
        print(
            f"{machine()}; onnxruntime {onnxruntime.__version__}; {spec.architecture}, {len(files)}"
            " images"
        )
        print(
            "\n| program | labels as served | largest difference | accuracy | MiB | images per CPU"
            " second |"
        )
        print("|---|---|---|---|---|---|")
        print(f"| MLflow | | | {np.mean(expected.argmax(1) == targets):.1%} | | |")
        for name in chosen.programs:
            kind, is_quantized = PROGRAMS[name]
            path = Path(folder) / f"{name}.onnx"
            quantization = Quantization(calibration, 100.0) if is_quantized else None
            export(model, spec, path, kind, (), quantization)
            size = f"{path.stat().st_size / (1 << 20):.1f}"
            _show(name, _onnxruntime(path, kind), files, targets, expected, kind, spec, size)
            if name == "image" and importlib.util.find_spec("openvino"):
                _show(
                    "image, OpenVINO", _openvino(path), files, targets, expected, kind, spec, size
                )


def vary(images: ImageDirectory, count: int) -> tuple[list[bytes], np.ndarray]:
    """Image files and their class indices: the images at 100 to 2,000 px, turned and encoded."""
    random = np.random.default_rng(0)
    files, chosen = [], [index % len(images) for index in range(count)]
    for number, index in enumerate(chosen):
        image = Image.open(images.path(index)).convert("L" if number % 25 == 24 else "RGB")
        image.thumbnail((side := int(100 * 20 ** random.random()), side))
        scale = max(side / max(image.size), 1)
        image = image.resize(
            (round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC
        )
        orientation, (kind, options) = number % 8 + 1, SAVED_AS[number % 10]
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        turned = image.transpose(TURNS[orientation]) if orientation > 1 else image
        turned.save(file := io.BytesIO(), kind, exif=exif, **options)
        files.append(file.getvalue())
    return files, images.class_indices[chosen]


def _onnxruntime(path: Path, kind: Input) -> Callable[[np.ndarray], np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if kind == "file":
        import onnxruntime_extensions

        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda value: np.asarray(session.run(["probabilities"], {name: value})[0])


def _openvino(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    openvino = importlib.import_module("openvino")
    options = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    program = openvino.Core().compile_model(path, "CPU", options)
    return lambda value: np.asarray(program([value])["probabilities"])


def _show(
    name: str,
    answer: Callable[[np.ndarray], np.ndarray],
    files: list[bytes],
    targets: np.ndarray,
    expected: np.ndarray,
    kind: Input,
    spec: ClassifierSpec,
    size: str,
) -> None:
    """Print a row; the speed is that of the program alone, with what it does to an image."""
    answers, spent_s = [], 0.0
    for file in files:
        asked = question_of(file, kind, spec)
        started_s = time.process_time()
        answers.append(answer(asked)[0])
        spent_s += time.process_time() - started_s
    predicted = np.stack(answers)
    same = int((predicted.argmax(1) == expected.argmax(1)).sum())
    print(
        f"| {name} | {same} of {len(files)} | {np.abs(predicted - expected).max():.4f} |"
        f" {np.mean(predicted.argmax(1) == targets):.1%} | {size} | {len(files) / spent_s:.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
