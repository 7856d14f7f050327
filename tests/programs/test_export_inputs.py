"""`export --input image` and `file`: of photographs of any size, the program predicts as a served
model.
"""

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import mlflow
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from PIL import Image

from tests.onnx_sessions import session_of
from tests.painting import encode, paint
from tests.programs.conftest import Trained
from tests.programs.program import assert_refused, run_process, run_program
from tests.readme import blocks
from train_pytorch_model.image_classifier.decoding import decode

ORIENTATION = 0x0112


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEG and PNG files of mixed sizes and every EXIF orientation."""
    root = tmp_path_factory.mktemp("photographs")
    for index in range(1, 17):
        colour = ("blue", "green", "red")[index % 3]
        exif = Image.Exif()
        exif[ORIENTATION] = (index - 1) % 8 + 1
        kind = ("jpeg", "png")[index > 8]
        paint(colour, index, (40 + 15 * index, 100)).save(root / f"{index}.{kind}", exif=exif)
    return root


@pytest.fixture(scope="module")
def exported(
    trained: Trained, photographs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The ONNX file for a kind of input, checked on the photographs; read-only."""

    @cache
    def export(kind: str) -> Path:
        output = tmp_path_factory.mktemp("exported") / "model.onnx"
        ended = run_program(
            *("export", "--trained-model", trained.output, "--format", "onnx", "--input", kind),
            *("--images", photographs, "--output", output),
        )
        assert ended.status == 0, ended.stderr
        assert "labels of 16 (photographs) as served, largest difference" in ended.stdout
        return output

    return export


def served_probabilities(trained: Trained, photographs: Path) -> np.ndarray:
    files = [path.read_bytes() for path in sorted(photographs.iterdir())]
    answers = mlflow.pyfunc.load_model(str(trained.output)).predict(pd.DataFrame({"image": files}))
    return np.asarray(answers.filter(like="Scored Probabilities"), dtype=float)


@pytest.mark.parametrize("kind", ["image", "file"])
def test_the_program_predicts_what_the_served_model_does(
    trained: Trained, photographs: Path, exported: Callable[[str], Path], kind: str
) -> None:
    session = session_of(exported(kind), kind)
    questions = [
        np.fromfile(path, np.uint8) if kind == "file" else np.array(decode(path))
        for path in sorted(photographs.iterdir())
    ]
    answers = np.concatenate([session.run(None, {kind: question})[0] for question in questions])
    served = served_probabilities(trained, photographs)
    np.testing.assert_allclose(answers, served, atol=0.02)
    found = json.loads(session.get_modelmeta().custom_metadata_map["check"])
    assert found["images"] == 16
    assert found["same_label"] == (answers.argmax(axis=1) == served.argmax(axis=1)).sum()
    assert found["largest_difference"] == pytest.approx(np.abs(answers - served).max(), abs=1e-5)


def test_the_pages_example_prints_the_category(
    trained: Trained,
    exported: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flowers-image.onnx").symlink_to(exported("image"))
    photo = encode(paint("red", 200, (50, 40)), "JPEG")
    (tmp_path / "photo.jpg").write_bytes(photo)
    (example,) = (
        code for code in blocks("python")["Serving and exporting"] if "onnxruntime" in code
    )
    ended = run_process(sys.executable, "-c", example)
    served = mlflow.pyfunc.load_model(str(trained.output)).predict(pd.DataFrame({"image": [photo]}))
    assert ended.stdout.strip() == served["Scored Labels"][0], ended.stderr


def test_openvino_predicts_the_same_of_the_same_file(
    photographs: Path, exported: Callable[[str], Path]
) -> None:
    openvino = pytest.importorskip("openvino")
    # It computes in bfloat16 by default where the processor can, indices of pixels included.
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    program = openvino.Core().compile_model(exported("image"), "CPU", options)
    session = onnxruntime.InferenceSession(exported("image"))
    for path in sorted(photographs.iterdir()):
        image = np.array(decode(path))
        (expected,) = session.run(None, {"image": image})
        np.testing.assert_allclose(program({"image": image})["probabilities"], expected, atol=1e-3)


def test_images_that_the_program_cannot_read_are_refused(trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_extensions")
    paint("red", 1).save(tmp_path / "red.bmp")
    ended = run_program(
        *("export", "--trained-model", trained.output, "--format", "onnx", "--input", "file"),
        *("--images", tmp_path, "--output", tmp_path / "model.onnx"),
    )
    assert_refused(ended, 2, "ParameterError: --images: none can be read", "was not written")
    assert not (tmp_path / "model.onnx").exists()


def test_the_cost_of_int8_is_measured(trained: Trained, folders: Path, tmp_path: Path) -> None:
    ended = run_program(
        *("export", "--trained-model", trained.output, "--format", "onnx", "--input", "image"),
        *("--quantize", "int8", "--calibration", folders / "validation"),
        *("--output", tmp_path / "small.onnx"),
    )
    assert ended.status == 0, ended.stderr
    described = {
        entry.key: entry.value for entry in onnx.load(tmp_path / "small.onnx").metadata_props
    }
    cost = json.loads(described["reduction"])
    assert cost["precision"] == "int8"
    # None is measured that has set the ranges.
    assert (cost["calibrated"], cost["images"]) == (3, 6)
    assert cost["accuracy"] >= cost["accuracy_before"] - 0.01
    assert cost["mib"] < 0.6 * cost["mib_before"]
    assert json.loads(described["check"])["images"] == 9
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx")
    photo = np.array(paint("red", 200, (50, 40)))
    served = served_probabilities(trained, folders / "validation" / "red")
    assert session.run(None, {"image": photo})[0] == pytest.approx(
        served.mean(0, keepdims=True), abs=0.2
    )


def test_int8_that_costs_too_much_is_refused(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    ended = run_program(
        *("export", "--trained-model", trained.output, "--format", "onnx", "--quantize", "int8"),
        *("--calibration", folders / "validation", "--max-accuracy-loss", "-100"),
        *("--output", tmp_path / "model.onnx"),
    )
    assert_refused(
        ended, 4, "ExportError: int8 costs", "points of accuracy; --max-accuracy-loss is -100"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_without_a_readable_image_is_refused(
    trained: Trained, tmp_path: Path
) -> None:
    for category in ("blue", "green", "red"):
        (tmp_path / "images" / category).mkdir(parents=True)
        (tmp_path / "images" / category / "1.png").write_bytes(encode(paint(category, 1))[:100])
    ended = run_program(
        *("export", "--trained-model", trained.output, "--format", "onnx", "--quantize", "int8"),
        *("--calibration", tmp_path / "images", "--output", tmp_path / "model.onnx"),
    )
    assert_refused(ended, 3, "InvalidDatasetError: ", "none of its images can be read", "truncated")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quantize", "int8"), "it is missing"),
        (("--calibration", "images"), "that is not given"),
    ],
)
def test_int8_and_its_images_go_together(
    trained: Trained, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    output = ("--output", tmp_path / "model.onnx")
    ended = run_program(
        "export", "--trained-model", trained.output, "--format", "onnx", *options, *output
    )
    assert_refused(ended, 2, "ParameterError: --", message)
