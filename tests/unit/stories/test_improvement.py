"""What is said about a corrected model beside the earlier one."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.painting import paint_folders
from tests.trainings import TINY

from train_pytorch_model import fit
from train_pytorch_model.quality.paired_test import PairedTest
from train_pytorch_model.stories.improvement import describe


@pytest.mark.parametrize(
    ("p_value", "verdict"), [(0.3, "That may be chance"), (0.01, "That is more than chance")]
)
def test_the_difference_is_told_with_what_chance_would_do(p_value: float, verdict: str) -> None:
    text = describe(PairedTest(120, 98, 105, 3, 10, p_value), "photographs-model")
    assert "of the same 120 test images" in text
    assert "photographs-model recognizes 98 (81.7%) and this model 105 (87.5%)" in text
    assert "10 only this one, 3 only the earlier one" in text
    assert verdict in text
    assert f"in {p_value * 100:.0f} of 100 such comparisons" in text


def test_a_tiny_probability_is_no_zero() -> None:
    text = describe(PairedTest(120, 40, 110, 0, 70, 1e-9), "photographs-model")
    assert "in less than one of 1,000 such comparisons" in text


def test_a_corrected_model_is_compared_on_what_both_have_not_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = paint_folders(tmp_path / "photographs", 12, size=(16, 16))
    options: dict[str, Any] = {
        "architecture": TINY,
        "from_scratch": True,
        "image_size": 16,
        "epochs": 1,
    }
    fit(folder, quiet=True, **options)
    table = tmp_path / "corrections.csv"
    table.write_text("file,decision\nred/0.png,blue\nred/1.png,pink\n", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        model = fit(folder, corrections=table, **options)

    assert model.root == tmp_path / "photographs-corrected"
    assert "What the corrections bought: of the same" in caplog.text
    compared = json.loads((model.root / "evaluation" / "compared.json").read_text())
    assert compared["earlier"] == "photographs-model"
    assert model.evaluation
    assert compared["images"] == model.evaluation.metrics["images"]
    assert (model.root / "corrections.csv").read_text().splitlines()[0].startswith("file,sha256")

    def split_of(name: str) -> dict[str, str]:
        rows = (tmp_path / name / "split.csv").read_text().splitlines()[1:]
        return {row.split(",")[0]: row.split(",")[2] for row in rows}

    before = split_of("photographs-model")
    after = split_of("photographs-corrected")
    assert all(before[name] == part for name, part in after.items())
