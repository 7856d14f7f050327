"""The designer's sentence, the code and the exit status of each error."""

import pytest

from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.errors import (
    FailedToDownloadFilesError,
    InvalidDatasetError,
    InvalidModelDirectoryError,
    ModuleOutOfMemoryError,
    NotLabeledDatasetError,
    OutputDirectoryError,
    ParameterError,
    TrainingError,
    UserError,
)


@pytest.mark.parametrize(
    ("error", "code", "exit_status", "text"),
    [
        (ParameterError("wrong"), "0004", 2, "wrong"),
        (OutputDirectoryError("full"), "", 2, "full"),
        (
            InvalidDatasetError("Training dataset", "it is empty.", "Fill it."),
            "0018",
            3,
            "Training dataset is not valid, reason: it is empty. Fill it.",
        ),
        (
            InvalidDatasetError("Training dataset", "it is empty."),
            "0018",
            3,
            "Training dataset is not valid, reason: it is empty.",
        ),
        (
            NotLabeledDatasetError("Training dataset", "Label it."),
            "0024",
            3,
            'There is no label column in "Training dataset". Label it.',
        ),
        (
            InvalidModelDirectoryError("Untrained model", "it is empty.", "Fill it."),
            "0159",
            3,
            'ModelDirectory "Untrained model" is invalid. Reason: it is empty. Fill it.',
        ),
        (
            FailedToDownloadFilesError("resnet18.pth", "Try again."),
            "0162",
            3,
            'Failed to download "resnet18.pth" due to internet error. Try again.',
        ),
        (TrainingError("diverged"), "", 4, "diverged"),
        (
            ModuleOutOfMemoryError("8 GB.", images_at_once=4),
            "0138",
            4,
            "Memory has been exhausted, unable to complete running of module. Details: 8 GB.",
        ),
    ],
)
def test_an_error_has_its_documented_sentence_number_and_status(
    error: UserError, code: str, exit_status: int, text: str
) -> None:
    assert (error.code, error.exit_status, str(error)) == (code, exit_status, text)


def test_running_out_of_memory_is_a_failed_training() -> None:
    assert issubclass(ModuleOutOfMemoryError, TrainingError)


@pytest.mark.parametrize(
    ("count", "last_line"),
    [(0, ""), (1, "  p0"), (10, "  p9"), (11, "  and 1 more"), (25, "  and 15 more")],
)
def test_ten_problems_are_listed_and_the_others_counted(count: int, last_line: str) -> None:
    text = bulleted([f"p{number}" for number in range(count)])
    assert text.rpartition("\n")[2] == last_line
    assert text.count("\n") == min(count, 11)


def test_a_notebook_shows_the_message_without_a_traceback() -> None:
    error = ParameterError("--epochs is 0.\nGive more.")
    assert error._render_traceback_() == ["ParameterError: --epochs is 0.", "Give more."]
