"""Invalid images and models given to `train`: each gives one message, its exit status, and no
output.
"""

import pickle
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.painting import paint, paint_folders
from tests.programs.program import Ended, assert_refused, run_program, train_arguments


def train_on(training: Path, validation: Path, untrained_model: Path, output: Path) -> Ended:
    """Run `train` on any two directories."""
    ports = ("--untrained-model", untrained_model, "--trained-model", output)
    datasets = ("--training-dataset", training, "--validation-dataset", validation)
    return run_program("train", *ports, *datasets)


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
        f'InvalidDatasetError: {port.capitalize()} dataset "{wrong}" is not valid, reason:'
        f" {reason}",
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
        f'NotLabeledDatasetError: There is no label column in "{port.capitalize()} dataset'
        f' {flat}". ',
        "Training needs a category for every image: one folder per category, or a labelled"
        " ImageDirectory.",
    )


def test_a_category_only_in_validation_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    training = paint_folders(tmp_path / "training", 2, categories=("blue", "red"))
    validation = folders / "validation"
    assert_refused(
        train_on(training, validation, untrained, output),
        3,
        f'InvalidDatasetError: Validation dataset "{validation}" is not valid, reason: its'
        f" categories are"
        " not those of the training dataset.",
        "Only in validation:\n  'green'",
        "Both need the same category names.",
    )


def test_a_single_category_is_refused(untrained: Path, output: Path, tmp_path: Path) -> None:
    images = paint_folders(tmp_path / "images", 2, categories=("blue",))
    assert_refused(
        train_on(images, images, untrained, output),
        3,
        f'InvalidDatasetError: Training dataset "{images}" is not valid, reason: it has one'
        f" category,"
        " 'blue'.",
        "A classifier needs at least two.",
    )


def test_a_category_without_a_readable_image_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 2)
    for path in (images / "green").iterdir():
        path.write_bytes(b"not an image")
    assert_refused(
        train_on(images, folders / "validation", untrained, output),
        3,
        f'InvalidDatasetError: Validation dataset "{folders / "validation"}" is not valid, reason:'
        " its categories are not those of the training dataset.\nOnly in validation:\n  'green'\n",
        "Categories without an image that can be read are left out:\n"
        "  'green': 2 images, such as 'green/0.png': not an image of a known format",
    )


def test_a_dataset_without_a_readable_image_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 1)
    for path in images.glob("*/*.png"):
        path.write_bytes(b"")
    assert_refused(
        train_on(folders / "training", images, untrained, output),
        3,
        f'InvalidDatasetError: Validation dataset "{images}" is not valid, reason: none of its'
        " images can be read:\n  'blue': 1 image, such as 'blue/0.png': the file is empty",
        "\nReplace them, or name another folder.\n",
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
        f'InvalidDatasetError: Training dataset "{images}" is not valid, reason: more than 5% of'
        f" the images"
        " of category 'blue' cannot be read.",
        "'blue/9.png': not an image of a known format",
        "and 1 more",
    )


# ── Model directories ────────────────────────────────────────────────────────────────────────────


def copy_of(untrained: Path, target: Path) -> Path:
    """A copy of a model directory, for a test to damage."""
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
def test_anything_but_a_model_directory_is_refused(
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
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {wrong}" is invalid.'
        f" Reason: {reason}",
    )


def test_a_model_of_another_framework_is_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model = copy_of(untrained, tmp_path / "model")
    spec = yaml.safe_load((model / "model_spec.yaml").read_text())
    spec["flavor"] = {"name": "sklearn", "serialization_method": "pickle"}
    (model / "model_spec.yaml").write_text(yaml.safe_dump(spec))
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid.'
        " Reason: it is not a PyTorch model: model_spec.yaml says flavor 'sklearn',"
        " serialization_method 'pickle'; expected 'pytorch', 'state_dict'.",
    )


def test_an_unknown_model_class_is_refused_and_not_imported(
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
        "names class 'Flight' of module 'antigravity'. Supported are ResNet, DenseNet",
        "nothing else is ever imported.",
    )
    assert "antigravity" not in sys.modules


def test_weights_of_the_wrong_shape_are_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model = copy_of(untrained, tmp_path / "model")
    state = torch.load(model / "model", weights_only=True)
    state["model.conv1.0.weight"] = torch.zeros(16, 1, 3, 3)
    del state["model.conv1.1.weight"]
    torch.save(state, model / "model")
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid.'
        f" Reason: ",
        "conv1.0.weight has shape (16, 1, 3, 3), expected (16, 3, 3, 3)",
        "conv1.1.weight is missing",
    )


class _Runs:
    """Creates a file when it is unpickled."""

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
    assert made.exists()  # unpickling it runs code
    made.unlink()
    if form == "torch.save":
        torch.save({"model.conv1.weight": _Runs(made)}, model / "model")
    else:
        (model / "model").write_bytes(pickle.dumps(_Runs(made), protocol=2))
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid.'
        f" Reason: ",
        "it holds more than tensors (a pickled object or function), which is never loaded.",
    )
    assert not made.exists()


def test_truncated_weights_are_refused(
    folders: Path, untrained: Path, output: Path, tmp_path: Path
) -> None:
    model = copy_of(untrained, tmp_path / "model")
    with (model / "model").open("r+b") as file:
        file.truncate(1_000_000)
    assert_refused(
        run_program(*train_arguments(folders, model, output)),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Untrained model {model}" is invalid.'
        f" Reason: ",
        "or is incomplete",
    )
