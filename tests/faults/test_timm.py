"""A transformer of timm is killed, resumed, trained further, scored, exported and served as
others.
"""

import shutil
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import yaml

from tests.faults.injections import signal_at_step
from tests.faults.trials import Bench, result_of
from tests.programs.program import run_process
from tests.programs.test_score import PREDICT
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.image_classifier.decoding import decode
from train_pytorch_model.inputs.scoring import open_scoring_inputs

KILL = partial(signal_at_step, number=5, signals=[signal.SIGKILL])  # in the second of two epochs
NAME = "test_vit"


@pytest.fixture(scope="module")
def timm_bench(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    untrained = tmp_path_factory.mktemp("untrained") / NAME
    recipe = Recipe(precision="float32")
    InitModel(output=untrained, architecture=f"timm:{NAME}", recipe=recipe).run()
    return replace(bench, untrained=untrained)


@pytest.fixture(scope="module")
def trained(timm_bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of which the training was killed once."""
    output = tmp_path_factory.mktemp("killed") / "trained"
    assert timm_bench.train(output, injections=[KILL]).statuses == [-signal.SIGKILL]
    ended = timm_bench.start(output, in_earnest=True).wait()  # which writes the MLflow model, too
    assert ended.status == 0, ended.stderr
    assert "Resumed" in ended.stdout
    assert "AdamW" in ended.stdout
    return output


@pytest.fixture(scope="module")
def scored(timm_bench: Bench, trained: Path) -> Path:
    """The scores of the validation images."""
    output, images = trained.with_name("scores"), timm_bench.folders / "validation"
    ports = ("--trained-model", trained, "--dataset", images, "--scored-dataset", output)
    ended = timm_bench.launch(["score", *map(str, ports)]).wait()
    assert ended.status == 0, ended.stderr
    return output


def probabilities_in(scored: Path) -> np.ndarray:
    return np.asarray(pd.read_parquet(scored / "_data.parquet").filter(like="Scored Probabilities"))


def test_a_killed_run_resumes_to_the_same_model(
    timm_bench: Bench, trained: Path, tmp_path: Path
) -> None:
    assert timm_bench.train(tmp_path / "undisturbed").status == 0
    assert result_of(trained) == result_of(tmp_path / "undisturbed")


def test_an_export_computes_the_scores(
    timm_bench: Bench, trained: Path, scored: Path, tmp_path: Path
) -> None:
    output, images = tmp_path / "model.onnx", timm_bench.folders / "validation"
    ports = ("--trained-model", trained, "--format", "onnx", "--output", output)
    ended = timm_bench.launch(["export", *map(str, ports)]).wait()
    assert ended.status == 0, ended.stderr
    framing = open_scoring_inputs(trained, images).spec.framing
    assert (framing.height, framing.width) == (160, 160)
    pixels = [framing.apply(decode(path)) for path in sorted(images.glob("*/*"))]
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(
        ["probabilities"], {"images": np.stack(pixels).transpose(0, 3, 1, 2)}
    )
    np.testing.assert_allclose(probabilities, probabilities_in(scored), atol=1e-4)


def test_the_served_model_predicts_the_scores_and_requires_timm(
    timm_bench: Bench, trained: Path, scored: Path
) -> None:
    images = timm_bench.folders / "validation"
    ended = run_process(sys.executable, "-c", PREDICT, trained, images, scored)
    assert ended.status == 0, ended.stderr
    served = pd.read_json(scored / "predicted.json").filter(like="Scored Probabilities")
    np.testing.assert_allclose(np.asarray(served), probabilities_in(scored), atol=1e-5)
    assert "timm==" in (trained / "requirements.txt").read_text()


def test_it_is_trained_further_for_more_categories_with_a_frozen_backbone(
    timm_bench: Bench, trained: Path, tmp_path: Path
) -> None:
    for part in ("training", "validation"):
        shutil.copytree(timm_bench.folders / part, tmp_path / part)
        shutil.copytree(tmp_path / part / "red", tmp_path / part / "another")
    shutil.copytree(trained, tmp_path / "model")
    spec = yaml.safe_load((tmp_path / "model" / "model_spec.yaml").read_text())
    spec["recipe"]["freeze_backbone"] = True
    (tmp_path / "model" / "model_spec.yaml").write_text(yaml.safe_dump(spec))
    further = replace(timm_bench, folders=tmp_path, untrained=tmp_path / "model")
    ended = further.train(tmp_path / "further")
    assert ended.status == 0, ended.stderr
    assert "4 categories, 3 of which it knows" in ended.stdout
