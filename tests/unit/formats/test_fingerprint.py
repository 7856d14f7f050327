"""What differs between two runs: options with both values, and directories."""

from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.formats.fingerprint import differing_options

BEFORE = {
    "parameters": "--epochs 3 --patience 2",
    "recipe": "--cutmix 0.5",
    "training_dataset": "a",
}


def test_options_that_differ_come_with_both_values() -> None:
    after = BEFORE | {
        "parameters": "--epochs 4 --patience 2",
        "recipe": "--cutmix 0.5 --framing pad",
    }
    assert list(differing_options(BEFORE, after)) == [
        ("--epochs", "3", "4"),
        ("--framing", "not set", "pad"),
    ]


def test_a_directory_of_other_content_is_named_without_values() -> None:
    after = BEFORE | {"training_dataset": "b", "untrained_model": "c"}
    assert list(differing_options(BEFORE, after)) == [
        ("--training-dataset", "", ""),
        ("--untrained-model", "", ""),
    ]


def test_equal_fingerprints_do_not_differ() -> None:
    assert list(differing_options(BEFORE, BEFORE)) == []


def test_in_python_options_and_directories_are_named_as_parameters() -> None:
    before = {"parameters": "--warmup-step-number 3 --batch-size 2", "training_dataset": "a"}
    after = {"parameters": "--warmup-step-number 4 --batch-size 1", "training_dataset": "b"}
    with for_command_line(False):
        assert [option for option, _, _ in differing_options(before, after)] == [
            "`warmup_epochs`",
            "`batch_size`",
            "`training_dataset`",
        ]
