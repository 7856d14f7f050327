"""README's commands for your own images, word for word, in one working directory."""

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import torchvision

from tests.painting import paint_folders
from tests.programs.program import run_process, run_program
from tests.readme import blocks, verbs_of
from train_pytorch_model.networks import download

PER_CATEGORY = 10  # in three categories: 18 images for training, 6 for validation, 6 for testing
CHAPTERS = (
    verbs_of("Your own images"),
    verbs_of("After the first model"),
    verbs_of("Step by step"),
    verbs_of("Evaluating"),
    verbs_of("Converting and splitting"),
    verbs_of("Transforming images"),
    verbs_of("Serving and exporting"),
)


@pytest.fixture
def _imagenet_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in torchvision's download cache, with a patched checksum: there is no network."""
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    name = torchvision.models.ResNet18_Weights.DEFAULT.url.rpartition("/")[2]
    torch.save(torchvision.models.resnet18().state_dict(), folder / name)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    sha256_start = name.removesuffix(".pth").rpartition("-")[2]
    monkeypatch.setattr(download, "sha256_of", lambda _: sha256_start)


@pytest.mark.usefixtures("_imagenet_weights")
def test_the_readmes_commands_train_evaluate_use_and_export_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    photographs = paint_folders(tmp_path / "photographs", PER_CATEGORY)
    shutil.copytree(photographs / "red", "flowers/new")
    shutil.copytree(photographs / "red", "new")
    shutil.copytree(photographs, "photographs-test")
    shutil.copy(photographs / "red" / "0.png", "photo.jpg")
    shutil.make_archive("flowers", "zip", photographs)
    Path("corrections.csv").write_text("file,decision\nred/0.png,blue\n")
    done: list[list[str]] = []
    for command in (words for chapter in CHAPTERS for words in chapter):
        if command not in done:  # two chapters evaluate
            ended = run_program(*command)
            assert (ended.status, ended.stderr) == (0, ""), command
            done.append(command)
    assert json.loads(Path("evaluation/metrics.json").read_text())["images"] == 6
    assert len(pd.read_csv("scores/scores.csv")) == PER_CATEGORY
    sizes = {
        path: len(list(Path(path).glob("image/*")))
        for path in ("training", "transformed/validation")
    }
    assert sizes == {"training": 24, "transformed/validation": 6}
    assert Path("flowers.onnx").stat().st_size > 40_000_000
    script, *_ = blocks("python")["Serving and exporting"]  # other tests run the others
    predicted = run_process(sys.executable, "-W", "ignore", "-c", script)
    assert predicted.status == 0, predicted.stderr
    assert "Scored Probabilities_red" in predicted.stdout
