"""Invalid parameters and outputs of `train`: each gives one message, its exit status, and no
output.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.programs.conftest import Trained
from tests.programs.program import assert_refused, run_program, train_arguments

# ── Parameters ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--epochs", "0", 'Parameter "Epochs" value should be greater than 0: --epochs is 0.'),
        ("--epochs", "-1", 'Parameter "Epochs" value should be greater than 0: --epochs is -1.'),
        (
            "--batch-size",
            "0",
            'Parameter "Batch size" value should be greater than 0: --batch-size is 0.',
        ),
        (
            "--warmup-step-number",
            "-1",
            'Parameter "Warmup step number" value should be greater than or equal to 0:'
            " --warmup-step-number is -1.",
        ),
        (
            "--learning-rate",
            "0",
            'Parameter "Learning rate" value should be greater than 0: --learning-rate is 0.0.',
        ),
        (
            "--learning-rate",
            "-1",
            'Parameter "Learning rate" value should be greater than 0: --learning-rate is -1.0.',
        ),
        (
            "--learning-rate",
            "nan",
            'Parameter "Learning rate" value should be a finite number: --learning-rate is nan.',
        ),
        (
            "--learning-rate",
            "inf",
            'Parameter "Learning rate" value should be a finite number: --learning-rate is inf.',
        ),
        (
            "--patience",
            "0",
            'Parameter "Patience" value should be greater than 0: --patience is 0.',
        ),
        (
            "--print-frequency",
            "0",
            'Parameter "Print frequency" value should be greater than 0: --print-frequency is 0.',
        ),
    ],
)
def test_a_parameter_out_of_range_is_refused(
    flag: str, value: str, sentence: str, folders: Path, untrained: Path, output: Path
) -> None:
    ended = run_program(*train_arguments(folders, untrained, output), flag, value)
    assert_refused(ended, 2, f"ParameterError: {sentence}\n")


def test_all_parameters_out_of_range_are_reported_at_once(
    folders: Path, untrained: Path, output: Path
) -> None:
    options = ("--epochs", "0", "--learning-rate", "nan", "--patience", "-3")
    assert_refused(
        run_program(*train_arguments(folders, untrained, output, *options)),
        2,
        "ParameterError: ",
        'Parameter "Epochs" value should be greater than 0: --epochs is 0.\n',
        'Parameter "Patience" value should be greater than 0: --patience is -3.\n',
        'Parameter "Learning rate" value should be a finite number: --learning-rate is nan.\n',
    )


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--learning-rate", "abc"),
        ("--epochs", "1.5"),
        ("--batch-size", "many"),
        ("--random-seed", ""),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(
    flag: str, value: str, folders: Path, untrained: Path, output: Path
) -> None:
    ended = run_program(*train_arguments(folders, untrained, output), flag, value)
    assert ended.status == 2
    assert flag in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "port", ["untrained-model", "training-dataset", "validation-dataset", "trained-model"]
)
def test_a_missing_argument_is_named(
    port: str, folders: Path, untrained: Path, output: Path
) -> None:
    arguments = train_arguments(folders, untrained, output)
    place = arguments.index(f"--{port}")
    ended = run_program(*arguments[:place], *arguments[place + 2 :])
    assert ended.status == 2
    assert f"--{port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unknown_flag_is_named(folders: Path, untrained: Path, output: Path) -> None:
    ended = run_program(*train_arguments(folders, untrained, output), "--epocks", "3")
    assert ended.status == 2
    assert "--epocks" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_program_alone_prints_its_help() -> None:
    ended = run_program()
    assert (ended.status, ended.stderr) == (0, "")
    assert "--help" in ended.stdout


def test_an_unknown_verb_is_refused() -> None:
    ended = run_program("trane")
    assert ended.status == 2
    assert "train" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_flags_may_use_underscores_for_hyphens(
    folders: Path, untrained: Path, output: Path
) -> None:
    arguments = [
        "--" + text[2:].replace("-", "_") if text.startswith("--") else text
        for text in train_arguments(folders, untrained, output, "--warmup-step-number", "-7")
    ]
    assert "--untrained_model" in arguments
    assert "--warmup_step_number" in arguments
    assert_refused(
        run_program(*arguments), 2, 'ParameterError: Parameter "Warmup step number" value should be'
    )


def test_a_batch_of_one_is_refused_where_batch_norm_needs_two(
    folders: Path, untrained: Path, output: Path
) -> None:
    assert_refused(
        run_program(*train_arguments(folders, untrained, output, "--batch-size", "1")),
        2,
        'ParameterError: Parameter "Batch size" value should be greater than 1: --batch-size is 1.',
        "At 32 x 32 px the batch norm of timm:test_resnet needs 2 images a step.",
    )


# ── The output ───────────────────────────────────────────────────────────────────────────────────


def test_an_output_below_a_file_is_refused(folders: Path, untrained: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert_refused(
        run_program(*train_arguments(folders, untrained, file / "trained")),
        2,
        f"OutputDirectoryError: --trained-model {file}/trained cannot be written: Not a directory.",
        "Name a directory that is new or empty.",
    )
    assert file.read_text() == "mine"


def test_an_output_below_a_file_is_refused_under_torchrun_too(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Processes of a job write a record beside the output.
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "file").write_text("mine")
    ended = run_program(*train_arguments(folders, untrained, tmp_path / "file" / "trained"))
    assert_refused(ended, 2, "OutputDirectoryError: --trained-model ")


def test_an_output_that_is_a_file_is_refused(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert_refused(
        run_program(*train_arguments(folders, untrained, file)),
        2,
        f"OutputDirectoryError: --trained-model {file} is a file. Name a directory that is new or"
        " empty.",
    )
    assert file.read_text() == "mine"


def test_a_non_empty_output_is_refused(folders: Path, untrained: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(
        run_program(*train_arguments(folders, untrained, tmp_path)),
        2,
        f"OutputDirectoryError: --trained-model {tmp_path} is not empty: it holds notes.txt.",
        "Name a directory that is new or empty.",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("verb", ["train", "score", "evaluate"])
@pytest.mark.parametrize("inside", ["", "new/one"])
def test_an_output_inside_the_dataset_is_refused(
    verb: str, inside: str, folders: Path, untrained: Path, trained: Trained
) -> None:
    images = folders / "validation"
    model = ("--trained-model", trained.output, "--dataset", images)
    arguments: dict[str, Sequence[str | Path]] = {
        "train": train_arguments(folders, untrained, images / inside),
        "score": ("score", *model, "--scored-dataset", images / inside),
        "evaluate": ("evaluate", *model, "--output", images / inside),
    }
    before = sorted(images.rglob("*"))
    relation = "inside" if inside else "the same as"
    ended = run_program(*arguments[verb])
    where = f" is {relation} --", f"dataset {images}. Name a directory that is elsewhere."
    assert_refused(ended, 2, "OutputDirectoryError: --", *where)
    assert sorted(images.rglob("*")) == before


def test_an_unfinished_output_is_refused(folders: Path, untrained: Path, tmp_path: Path) -> None:
    (tmp_path / "_incomplete").touch()
    (tmp_path / "model").touch()
    assert_refused(
        run_program(*train_arguments(folders, untrained, tmp_path)),
        2,
        f"OutputDirectoryError: --trained-model {tmp_path} holds an unfinished result",
    )


@pytest.mark.parametrize("verb", ["init-model", "quickstart"])
def test_other_verbs_refuse_a_non_empty_output_too(verb: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(
        run_program(verb, "--output", tmp_path),
        2,
        f"OutputDirectoryError: --output {tmp_path} is not empty: it holds notes.txt.",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
