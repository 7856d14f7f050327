"""README's chain, word for word but with a short training: from an archive of photographs to an
ONNX file.
"""

import json
import shutil
from pathlib import Path

import onnxruntime
import pandas as pd
import pytest

from tests.painting import paint_folders
from tests.programs.program import run_program
from tests.readme import verbs_of

NUM_IMAGES = 30


def test_the_chain_of_the_readme_goes_from_a_zip_to_an_onnx_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.make_archive("flowers", "zip", paint_folders(tmp_path / "photographs", NUM_IMAGES // 3))
    for command in verbs_of("The whole chain"):
        ended = run_program(*command, *(("--epochs", "1") if command[0] == "train" else ()))
        assert (ended.status, ended.stderr) == (0, ""), command
        assert "optimistic" not in ended.stdout
    outputs = {path.name for path in (tmp_path / "chain").iterdir()}
    assert outputs == {
        *("images", "training", "validation", "test", "transformation", "transformed_training"),
        *(
            "transformed_validation",
            "transformed_test",
            "untrained",
            "trained",
            "scores",
            "evaluation",
            "model.onnx",
        ),
    }
    scores = pd.read_csv("chain/scores/scores.csv")
    metrics = json.loads(Path("chain/evaluation/metrics.json").read_text())
    assert metrics["images"] == len(scores) == NUM_IMAGES // 5
    assert metrics["accuracy"] == (scores["category"] == scores["Scored Labels"]).mean()
    assert "Top 2 Probability" in scores
    (input_,) = onnxruntime.InferenceSession("chain/model.onnx").get_inputs()
    assert input_.shape[1:] == [3, 256, 256]
