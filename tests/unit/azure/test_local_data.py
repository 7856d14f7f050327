"""What is odd in local data is told before it is uploaded, also without a local model."""

from pathlib import Path

import pytest
from tests.painting import paint_folders

from train_pytorch_model.azure.local_data import _check_datasets


def test_a_category_that_only_validation_lacks_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = paint_folders(tmp_path / "training", 1)
    validation = paint_folders(tmp_path / "validation", 1, ("blue", "red"), first=9)
    _check_datasets(training, validation)
    assert "has no image of category\n  'green'" in caplog.text


def test_one_local_data_set_is_looked_at_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = paint_folders(tmp_path / "training", 1)
    (training / "empty").mkdir()
    _check_datasets(training, None)
    assert "folders without an image are no categories" in caplog.text
