"""Every mistake that a user can make with `train`: one message, its exit status, and no output."""

import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from tests.painting import paint, paint_folders
from tests.programs.program import Ended, assert_refused, run_program, train_arguments


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """Where the trained model would be; no test of this module leaves anything there."""
    path = tmp_path / "results" / "trained"
    yield path
    assert not path.parent.exists()


def train_on(training: Path, validation: Path, untrained_model: Path, output: Path) -> Ended:
    """`train` on any two directories."""
    ports = ("--untrained-model", untrained_model, "--trained-model", output)
    datasets = ("--training-dataset", training, "--validation-dataset", validation)
    return run_program("train", *ports, *datasets)


# ── Parameters ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--epochs", "0", 'Parameter "Epochs" value should be greater than 0: --epochs is 0.'),
        ("--epochs", "-1", 'Parameter "Epochs" value should be greater than 0: --epochs is -1.'),
        ("--batch-size", "0", 'Parameter "Batch size" value should be greater than 0: --batch-size is 0.'),
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
        ("--patience", "0", 'Parameter "Patience" value should be greater than 0: --patience is 0.'),
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


def test_all_parameters_out_of_range_are_told_at_once(folders: Path, untrained: Path, output: Path) -> None:
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
    [("--learning-rate", "abc"), ("--epochs", "1.5"), ("--batch-size", "many"), ("--random-seed", "")],
)
def test_a_value_that_is_no_number_is_refused(
    flag: str, value: str, folders: Path, untrained: Path, output: Path
) -> None:
    ended = run_program(*train_arguments(folders, untrained, output), flag, value)
    assert ended.status == 2
    assert flag in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "port", ["untrained-model", "training-dataset", "validation-dataset", "trained-model"]
)
def test_a_missing_argument_is_named(port: str, folders: Path, untrained: Path, output: Path) -> None:
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


@pytest.mark.parametrize("arguments", [(), ("trane",)])
def test_a_verb_is_needed(arguments: tuple[str, ...]) -> None:
    ended = run_program(*arguments)
    assert ended.status == 2
    assert "train" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_underscores_are_as_good_as_hyphens(folders: Path, untrained: Path, output: Path) -> None:
    arguments = [
        "--" + text[2:].replace("-", "_") if text.startswith("--") else text
        for text in train_arguments(folders, untrained, output, "--warmup-step-number", "-7")
    ]
    assert "--untrained_model" in arguments
    assert "--warmup_step_number" in arguments
    assert_refused(
        run_program(*arguments), 2, 'ParameterError: Parameter "Warmup step number" value should be'
    )


def test_a_batch_of_one_that_batch_norm_cannot_take_is_refused(
    folders: Path, untrained: Path, output: Path
) -> None:
    assert_refused(
        run_program(*train_arguments(folders, untrained, output, "--batch-size", "1")),
        2,
        'ParameterError: Parameter "Batch size" value should be greater than 1: --batch-size is 1.',
        "At 32 x 32 px the batch norm of resnet18 needs 2 images a step.",
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


def test_an_output_below_a_file_is_refused_in_a_job_as_well(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # its processes leave a record beside the output
    (tmp_path / "file").write_text("mine")
    ended = run_program(*train_arguments(folders, untrained, tmp_path / "file" / "trained"))
    assert_refused(ended, 2, "OutputDirectoryError: --trained-model ")


def test_an_output_that_is_a_file_is_refused(folders: Path, untrained: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert_refused(
        run_program(*train_arguments(folders, untrained, file)),
        2,
        f"OutputDirectoryError: --trained-model {file} is a file. Name a directory that is new or empty.",
    )
    assert file.read_text() == "mine"


def test_an_output_that_holds_something_is_refused(folders: Path, untrained: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(
        run_program(*train_arguments(folders, untrained, tmp_path)),
        2,
        f"OutputDirectoryError: --trained-model {tmp_path} is not empty: it holds notes.txt.",
        "Nothing is ever overwritten; name a directory that is new or empty.",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_unfinished_output_is_refused(folders: Path, untrained: Path, tmp_path: Path) -> None:
    (tmp_path / "_incomplete").touch()
    (tmp_path / "model").touch()
    assert_refused(
        run_program(*train_arguments(folders, untrained, tmp_path)),
        2,
        f"OutputDirectoryError: --trained-model {tmp_path} holds an unfinished result",
    )


@pytest.mark.parametrize("verb", ["init-model", "quickstart"])
def test_other_verbs_overwrite_nothing_either(verb: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(
        run_program(verb, "--output", tmp_path),
        2,
        f"OutputDirectoryError: --output {tmp_path} is not empty: it holds notes.txt.",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# ── Image directories ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("port", ["training", "validation"])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "there is no such directory."),
        ("empty", "it is empty."),
        ("file", "it is a file, not a directory."),
        ("imageless", "no image in it ("),
    ],
)
def test_a_directory_without_images_is_refused(
    port: str, kind: str, reason: str, folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / kind
    if kind == "file":
        wrong.write_text("not a directory")
    elif kind != "missing":
        wrong.mkdir()
    if kind == "imageless":
        (wrong / "blue").mkdir()
        (wrong / "blue" / "notes.txt").write_text("not an image")
    ports = {"training": folders / "training", "validation": folders / "validation"} | {port: wrong}
    assert_refused(
        train_on(ports["training"], ports["validation"], untrained, output),
        3,
        f'InvalidDatasetError: {port.capitalize()} dataset "{wrong}" is not valid, reason: {reason}',
        "An image directory holds one folder per category with the images in it",
    )


@pytest.mark.parametrize("port", ["training", "validation"])
def test_unlabelled_images_are_refused(
    port: str, folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    paint("blue", 1).save(flat / "1.png")
    ports = {"training": folders / "training", "validation": folders / "validation"} | {port: flat}
    assert_refused(
        train_on(ports["training"], ports["validation"], untrained, output),
        3,
        f'NotLabeledDatasetError: There is no label column in "{port.capitalize()} dataset {flat}". ',
        "Training needs a category for every image: one folder per category, or a labelled ImageDirectory.",
    )


def test_a_validation_category_that_training_does_not_know_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    training = paint_folders(tmp_path / "training", 2, categories=("blue", "red"))
    validation = folders / "validation"
    assert_refused(
        train_on(training, validation, untrained, output),
        3,
        f'InvalidDatasetError: Validation dataset "{validation}" is not valid, reason: its categories are'
        " not those of the training dataset.",
        "Only in validation:\n  'green'",
        "Both need the same category names.",
    )


def test_a_training_category_that_validation_lacks_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    validation = paint_folders(tmp_path / "validation", 2, categories=("blue", "red"))
    assert_refused(
        train_on(folders / "training", validation, untrained, output),
        3,
        f'InvalidDatasetError: Validation dataset "{validation}" is not valid, reason: its categories are'
        " not those of the training dataset.",
        "Only in training:\n  'green'",
    )


def test_one_category_alone_is_refused(untrained: Path, output: Path, tmp_path: Path) -> None:
    images = paint_folders(tmp_path / "images", 2, categories=("blue",))
    assert_refused(
        train_on(images, images, untrained, output),
        3,
        f'InvalidDatasetError: Training dataset "{images}" is not valid, reason: it has one category,'
        " 'blue'.",
        "A classifier needs at least two.",
    )


def test_a_category_of_which_no_image_can_be_read_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 2)
    for path in (images / "green").iterdir():
        path.write_bytes(b"not an image")
    assert_refused(
        train_on(images, folders / "validation", untrained, output),
        3,
        f'InvalidDatasetError: Training dataset "{images}" is not valid, reason: no image can be read of'
        " category 'green'.",
        "green/0.png: not an image of a known format",
        "green/1.png: not an image of a known format",
        "Replace or remove them.",
    )


def test_a_directory_of_which_nothing_can_be_read_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 1)
    for path in images.glob("*/*.png"):
        path.write_bytes(b"")
    assert_refused(
        train_on(folders / "training", images, untrained, output),
        3,
        f'InvalidDatasetError: Validation dataset "{images}" is not valid, reason: none of its images can be'
        " read.",
    )


def test_more_than_five_percent_unreadable_images_are_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 15, size=(8, 8))
    for index in range(11):
        (images / "blue" / f"{index}.png").write_bytes(b"not an image")
    assert_refused(
        train_on(images, folders / "validation", untrained, output),
        3,
        f'InvalidDatasetError: Training dataset "{images}" is not valid, reason: more than 5% of the images'
        " of category 'blue' cannot be read.",
        "blue/9.png: not an image of a known format",
        "and 1 more",
    )


# ── Model directories ────────────────────────────────────────────────────────────────────────────


def copy_of(untrained: Path, target: Path) -> Path:
    """A model directory to spoil."""
    target.mkdir()
    for name in ("_meta.yaml", "model_spec.yaml", "model"):
        shutil.copyfile(untrained / name, target / name)
    return target


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "there is no such directory."),
        ("file", "it is a file, not a directory."),
        ("empty", "_meta.yaml is missing."),
    ],
)
def test_something_else_than_a_model_directory_is_refused(
    kind: str, reason: str, folders: Path, output: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / kind
    if kind == "file":
        wrong.write_text("not a directory")
    elif kind == "empty":
        wrong.mkdir()
    assert_refused(
        run_program(*train_arguments(folders, wrong, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {wrong}" is invalid. Reason: {reason}',
    )


def test_a_model_that_is_not_of_pytorch_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model = copy_of(untrained, tmp_path / "model")
    spec = yaml.safe_load((model / "model_spec.yaml").read_text())
    spec["flavor"] = {"name": "sklearn", "serialization_method": "pickle"}
    (model / "model_spec.yaml").write_text(yaml.safe_dump(spec))
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid. Reason: it is not'
        " a PyTorch model: model_spec.yaml says flavor 'sklearn', serialization_method 'pickle'; expected"
        " 'pytorch', 'state_dict'.",
    )


def test_a_class_that_is_not_in_our_table_is_refused_and_not_imported(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model = copy_of(untrained, tmp_path / "model")
    spec = yaml.safe_load((model / "model_spec.yaml").read_text())
    spec["flavor_extras"] |= {"module": "antigravity", "class": "Flight"}
    (model / "model_spec.yaml").write_text(yaml.safe_dump(spec))
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid.',
        "names class 'Flight' of module 'antigravity'. Known are ResNet, DenseNet",
        "nothing else is ever imported.",
    )
    assert "antigravity" not in sys.modules


def test_weights_of_the_wrong_shape_are_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model = copy_of(untrained, tmp_path / "model")
    state = torch.load(model / "model", weights_only=True)
    state["model.conv1.weight"] = torch.zeros(64, 1, 7, 7)
    del state["model.bn1.weight"]
    torch.save(state, model / "model")
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid. Reason: ',
        "conv1.weight has shape (64, 1, 7, 7), expected (64, 3, 7, 7)",
        "bn1.weight is missing",
    )


class _Runs:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("form", ["torch.save", "pickle"])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(
    form: str, folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model, made = copy_of(untrained, tmp_path / "model"), tmp_path / "made"
    pickle.loads(pickle.dumps(_Runs(made)))
    assert made.exists()  # it would
    made.unlink()
    if form == "torch.save":
        torch.save({"model.conv1.weight": _Runs(made)}, model / "model")
    else:
        (model / "model").write_bytes(pickle.dumps(_Runs(made), protocol=2))
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid. Reason: ',
        "it holds more than tensors (a pickled object or function), which is never loaded.",
    )
    assert not made.exists()


def test_weights_that_are_cut_short_are_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model = copy_of(untrained, tmp_path / "model")
    with (model / "model").open("r+b") as file:
        file.truncate(1_000_000)
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid. Reason: ',
        "it is not a file of torch.save",
    )
