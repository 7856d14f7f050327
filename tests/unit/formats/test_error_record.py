"""The record that an Azure ML job leaves of the error that has ended it."""

import json
from pathlib import Path

import pytest

from train_pytorch_model.errors import NotLabeledDatasetError
from train_pytorch_model.formats.error_record import leave_error_info


def test_an_azure_job_gets_the_failure_in_the_designers_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leave_error_info(NotLabeledDatasetError("Training dataset", "Label it."), rank=0)
    leave_error_info(NotLabeledDatasetError("Validation dataset", "Label it."), rank=1)
    assert json.loads((tmp_path / "outputs" / "error_info.json").read_text()) == {
        "class": "NotLabeledDatasetError",
        "code": "0024",
        "message": 'There is no label column in "Training dataset". Label it.',
        "exit_status": 3,
    }
