"""What differs between two runs: options with both values, and directories."""

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
