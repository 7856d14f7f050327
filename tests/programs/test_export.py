"""`export`: in its runtime, the exported file computes the same probabilities as the model."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.disks import files_of_at_most
from tests.programs.conftest import Trained
from tests.programs.program import assert_refused, run_program
from tests.trainings import SMALL
from train_pytorch_model.commands.score import Score
from train_pytorch_model.export import conversion
from train_pytorch_model.image_classifier.decoding import decode
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.scoring import open_scoring_inputs


@pytest.fixture(scope="module")
def onnx_file(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("onnx") / "model.onnx"
    ended = run_program(
        "export", "--trained-model", trained.output, "--format", "onnx", "--output", output
    )
    assert ended.status == 0, ended.stderr
    assert "opset 20; its probabilities are within" in ended.stdout
    return output


def pixels(trained: Trained, folders: Path) -> np.ndarray:
    """The validation images as input of an exported program, (9, 3, 32, 32), uint8."""
    images = open_scoring_inputs(trained.output, folders / "validation").images
    framing = Framing(32, 32, 1.0)
    return np.stack([framing.apply(decode(images.path(i))) for i in range(len(images))]).transpose(
        0, 3, 1, 2
    )


def scores(trained: Trained, folders: Path, output: Path) -> np.ndarray:
    """The probabilities that `score` writes for the same images, (9, 3)."""
    import pandas as pd

    Score(trained_model=trained.output, dataset=folders / "validation", scored_dataset=output).run()
    table = pd.read_parquet(output / "_data.parquet")
    return np.asarray(table.filter(like="Scored Probabilities"))


def test_onnxruntime_returns_the_scores_for_any_number_of_images(
    onnx_file: Path, trained: Trained, folders: Path, tmp_path: Path
) -> None:
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    images = pixels(trained, folders)
    expected = scores(trained, folders, tmp_path / "scores")
    (whole,) = session.run(["probabilities"], {"images": images})
    (first,) = session.run(["probabilities"], {"images": images[:1]})
    np.testing.assert_allclose(whole, expected, atol=1e-4)
    np.testing.assert_allclose(first, expected[:1], atol=1e-4)


def test_the_onnx_file_contains_its_categories_and_preprocessing(onnx_file: Path) -> None:
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["class_names"]) == ["blue", "green", "red"]
    assert json.loads(metadata["preprocessing"])["height"] == 32
    assert metadata["architecture"] == SMALL


def test_an_output_named_like_a_file_of_pytorch_is_refused(trained: Trained) -> None:
    ended = run_program("export", "--trained-model", trained.output, "--output", "m.PT")
    assert_refused(
        ended,
        2,
        "ParameterError: --output m.PT is named like a file of PyTorch, and export writes ONNX."
        " Give --output m.onnx.",
    )


def test_a_file_that_another_export_writes_is_refused_and_left_alone(
    trained: Trained, tmp_path: Path
) -> None:
    unfinished = tmp_path / "model.onnx.unfinished"
    unfinished.write_text("theirs")
    options = (
        "--trained-model",
        trained.output,
        "--format",
        "onnx",
        "--output",
        tmp_path / "model.onnx",
    )
    assert_refused(
        run_program("export", *options), 2, "OutputDirectoryError: ", "by another export"
    )
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(unfinished, "theirs")]


def test_an_export_that_does_not_match_is_an_error_and_leaves_nothing(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "TOLERANCE", -1.0)  # no export is this close
    output = tmp_path / "model.onnx"
    ended = run_program(
        "export", "--trained-model", trained.output, "--format", "onnx", "--output", output
    )
    assert_refused(
        ended, 4, "ExportError: The exported program differs from the model by", "was not written"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(trained: Trained, tmp_path: Path) -> None:
    output = tmp_path / "model"
    with files_of_at_most(1_000_000):
        ended = run_program(
            "export", "--trained-model", trained.output, "--format", "onnx", "--output", output
        )
    assert_refused(
        ended, 4, f"UnfinishedOutputError: --output {output} cannot be written: File too large."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_a_file_of_the_user_is_never_overwritten(
    trained: Trained, tmp_path: Path, options: tuple[str, ...]
) -> None:
    output = tmp_path / "model.onnx"
    output.write_text("mine")
    ended = run_program(
        "export", "--trained-model", trained.output, "--format", "onnx", "--output", output,
        *options,
    )  # fmt: skip
    assert_refused(
        ended, 2, "OutputDirectoryError: --output", "export has not written it. Name another."
    )
    assert output.read_text() == "mine"


def test_an_output_below_a_file_is_refused(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file" / "model.onnx"
    ended = run_program(
        "export", "--trained-model", trained.output, "--format", "onnx", "--output", output
    )
    assert_refused(ended, 2, "OutputDirectoryError: --output", "cannot be written")


def test_an_image_size_other_than_the_models_is_refused(trained: Trained, tmp_path: Path) -> None:
    ended = run_program(
        *("export", "--trained-model", trained.output, "--format", "onnx"),
        *("--output", tmp_path / "model.onnx", "--image-size", "64"),
    )
    assert_refused(ended, 2, "ParameterError: --image-size is 64; the model's is (32, 32).")


def test_an_untrained_model_is_not_exported(untrained: Path, tmp_path: Path) -> None:
    ended = run_program(
        *(
            "export",
            "--trained-model",
            untrained,
            "--format",
            "onnx",
            "--output",
            tmp_path / "model.onnx",
        )
    )
    assert_refused(ended, 3, "InvalidModelDirectoryError: ", "it is not trained", "Train it first")
