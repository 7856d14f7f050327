"""Twins, from a command's first line to its files: what training, the report and `evaluate` say of
copies.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.painting import paint_scene
from tests.programs.program import Ended, run_program, train_arguments

SIZE = (96, 64)


def said(ended: Ended) -> str:
    return " ".join((ended.stdout + ended.stderr).split())


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Training and validation folders; 6 of 10 validation images are copies, one in another
    category.
    """
    for index in range(16):
        folder = tmp_path / "training" / ("cat", "dog")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        paint_scene(index, SIZE).save(folder / f"{index}.png")
    for index in range(10):
        folder = tmp_path / "validation" / ("cat", "dog")[(index + (index == 5)) % 2]
        folder.mkdir(parents=True, exist_ok=True)
        image = paint_scene(index if index < 6 else 100 + index, SIZE)
        if index in (2, 3):
            image.save(folder / f"{index}.jpg", quality=60)
        elif index == 4:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "4.png")
        else:
            image.save(folder / f"{index}.png")
    return tmp_path


def test_copies_are_announced_listed_shown_and_recognized(
    planted: Path, untrained: Path, tmp_path: Path
) -> None:
    output, evaluation = tmp_path / "trained", tmp_path / "evaluation"
    ended = run_program(*train_arguments(planted, untrained, output, "--epochs", "1"))
    assert ended.status == 0, ended.stderr
    assert "Warning: 3 of 10 validation images are also among the training images: " in said(ended)
    assert "Warning: 1 image has an identical file in another category." in said(ended)
    assert "Warning: 6 of 10 validation images look like a training image: " in said(ended)
    with (output / "twins.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["file_name"] == "dog/5.png"
    assert (rows[0]["other_file_name"], rows[0]["other_category"], rows[0]["kind"]) == (
        "cat/5.png",
        "cat",
        "identical",
    )
    assert sorted(row["kind"] for row in rows) == [
        *["identical"] * 3,
        "mirrored",
        "similar",
        "similar",
    ]
    hashes = np.frombuffer((output / "image_hashes.bin").read_bytes(), np.uint8).reshape(16, 16)
    assert hashes.any(axis=1).all()
    report = (output / "report.html").read_text(encoding="utf-8")
    assert "Images that look alike" in report
    assert "6 of 10 validation images look like a training image" in report

    ended = run_program(
        *(
            "evaluate",
            "--trained-model",
            output,
            "--dataset",
            planted / "validation",
            "--output",
            evaluation,
        )
    )
    assert ended.status == 0, ended.stderr
    assert "6 of 10 images look like an image on which the model was trained: " in said(ended)
    metrics = json.loads((evaluation / "metrics.json").read_text())
    assert metrics["images_like_training_images"] == 6
    assert metrics["accuracy_without_them"] in (0, 0.25, 0.5, 0.75, 1)
    assert "6 of 10 images look like" in (evaluation / "evaluation.html").read_text(
        encoding="utf-8"
    )

    (output / "image_hashes.bin").unlink()
    again = tmp_path / "again"
    ended = run_program(
        *(
            "evaluate",
            "--trained-model",
            output,
            "--dataset",
            planted / "validation",
            "--output",
            again,
        )
    )
    assert ended.status == 0, ended.stderr
    assert json.loads((again / "metrics.json").read_text())["images_like_training_images"] is None
