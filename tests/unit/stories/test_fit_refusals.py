"""What `fit` refuses is told in the words of its reader: options that `fit` has, or parameters."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.painting import paint, paint_folders

from train_pytorch_model.commands.fit import Fit
from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.options import assemble, options_in
from train_pytorch_model.config.wording import flag, for_command_line
from train_pytorch_model.errors import UserError
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.stories.fit import fit

FLAGS = {flag(option.name) for option in options_in(Fit)} - {"--folder"}
PARAMETERS = {option.name for option in options_in(FitOptions)} | {"folder", "fit", "predict"}
OF_OTHER_VERBS = re.compile("init-model|[Cc]onvert|--trained-model|`train`|image directory holds")


def folders(root: Path) -> Path:
    return paint_folders(root / "photographs", 3)


def table(content: str) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        folder = root / "photographs"
        folder.mkdir()
        for index in range(3):
            paint("red", index).save(folder / f"{index}.png")
        (folder / "labels.csv").write_text(content)
        return folder

    return write


def parts(part: str) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        paint_folders(root / "photographs/train", 2)
        folder = paint_folders(root / f"photographs/{part}", 2)
        (folder / "red").rename(folder / "crimson")
        return root / "photographs"

    return write


def damaged(root: Path) -> Path:
    for path in folders(root).rglob("*.png"):
        path.write_bytes(b"")
    return root / "photographs"


def file(name: str) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        (root / name).write_bytes(b"x")
        return root / name

    return write


def with_content(name: str) -> Callable[[Path], Path]:
    """Return what makes a folder of images, beside a directory `full` with this file."""

    def write(root: Path) -> Path:
        (root / "full").mkdir()
        (root / "full" / name).write_text("x")
        return folders(root)

    return write


def beside_spreadsheet(root: Path) -> Path:
    paint_folders(root / "photographs", 3, ("red",))
    (root / "photographs/red").rename(root / "photographs/images")
    return file("photographs/labels.xlsx")(root).parent


def link(root: Path) -> Path:
    (root / "links").mkdir()
    (root / "links/red").symlink_to(folders(root) / "red")
    return root / "links"


def with_meta(root: Path) -> Path:
    (folders(root) / META).write_text("type: ModelDirectory")
    return root / "photographs"


SPLIT = "image,label,split\n0.png,a,{}\n1.png,b,{}\n2.png,b,{}\n"
LABELS = "image,label\n0.png,a\n1.png,b\n2.png,b\n"
REFUSALS: list[tuple[Callable[[Path], Path], dict[str, Any], str]] = [
    (lambda root: root / "nowhere", {}, "there is no such directory. Name a folder with one"),
    (lambda root: root, {}, "is empty. Name a folder with one folder per category"),
    (file("a.rar"), {}, "is not an archive of a supported format. Name a folder"),
    (file("a.zip"), {}, "is not an archive of a supported format. Name a folder"),
    (file("a.xlsx"), {}, "is a spreadsheet, which is not read. Save it as CSV"),
    (beside_spreadsheet, {}, "'labels.xlsx' is a spreadsheet, which is not read. Save it as CSV"),
    (lambda root: folders(root) / "red", {}, "no label column"),
    (lambda root: paint_folders(root / "one", 3, ("red",)), {}, "has one category, 'red'"),
    (lambda root: paint_folders(root / "few", 1), {}, "are too few to split"),
    (damaged, {}, "none of its images can be read"),
    (link, {}, "links to folders are not followed"),
    (with_meta, {}, "says type 'ModelDirectory'"),
    (parts("val"), {}, "Only in validation:\n  'crimson'"),
    (parts("test"), {}, "training has none of these categories:\n  'crimson'"),
    (folders, {"label_column": "species"}, "could have a column 'species'"),
    (table("image\n0.png\n1.png\n"), {}, "labels.csv has no column of categories, only 'image'"),
    (table("image,label\na.png,a\n"), {}, "was taken for the names; {file_column} names another"),
    (table("image,label\n0.png,a\n0.png,b\n"), {}, "1 row of labels.csv cannot be used"),
    (table("image,class,label\n0.png,a,x\n1.png,a,y\n2.png,b,y\n"), {}, "it with {label_column}"),
    (table(LABELS), {"label_column": "species"}, "labels.csv has no column 'species'; it has"),
    (table(LABELS), {"split_column": "label"}, "with {split_column}, or rename this one"),
    (table(SPLIT.format("train", "other", "test")), {}, "it also holds 'other'"),
    (table(SPLIT.format("test", "test", "test")), {}, "has no image for training"),
    (folders, {"group_by": "("}, "{group_by} '(' is not a regular expression"),
    (folders, {"group_by": "png"}, "same name by {group_by}, are a group"),
    (folders, {"output": "photographs/model"}, "{output} %/photographs/model is inside {folder}"),
    (with_content("mine"), {"output": "full"}, "{output} %/full is not empty: it holds mine"),
    (with_content("mine"), {"output": "full", "overwrite": True}, "cannot be replaced: it is not"),
    (with_content(INCOMPLETE), {"output": "full"}, "{output} %/full holds an unfinished result"),
    (with_content("x"), {"output": "full/x"}, "{output} %/full/x is a file"),
    (folders, {"output": "model.onnx"}, "{output} %/model.onnx will be a directory"),
    (folders, {"architecture": "resnet1"}, "{architecture} resnet1 is not known. Did you mean"),
    (folders, {"memory_efficient": True}, "{memory_efficient} is an option of DenseNet"),
    (folders, {"pretrained": True, "weights": "DEFAULT"}, "{pretrained}, {weights} and"),
    (folders, {"weights_file": "w.pt"}, "{weights_file} %/w.pt cannot be used: there is no such"),
    (folders, {"training_size": 500}, "{training_size} 500 needs an {image_size}"),
    (folders, {"architecture": "vit_b_16", "image_size": 64}, "{image_size} 64 does not fit"),
    (folders, {"start_from": "photographs"}, "{start_from} %/photographs"),
    (folders, {"start_from": "x", "architecture": "resnet50"}, "{start_from} and {architecture}"),
]
PATHS = ("output", "weights_file", "start_from")


@pytest.mark.parametrize("is_command_line", [True, False])
@pytest.mark.parametrize(
    ("make", "given", "text"), REFUSALS, ids=[text[:30] for *_, text in REFUSALS]
)
def test_a_refusal_names_what_its_reader_can_give(
    tmp_path: Path,
    make: Callable[[Path], Path],
    given: dict[str, Any],
    text: str,
    is_command_line: bool,
) -> None:
    values = {name: tmp_path / value if name in PATHS else value for name, value in given.items()}
    values |= {"from_scratch": not {"weights", "start_from"} & set(given)}
    folder = make(tmp_path)
    with for_command_line(is_command_line), pytest.raises(UserError) as refused:
        fit(folder, assemble(FitOptions, values))
    message = str(refused.value)
    names = {name: flag(name) if is_command_line else f"`{name}`" for name in PARAMETERS}
    names["folder"] = "FOLDER" if is_command_line else "`folder`"
    assert text.replace("%", str(tmp_path)).format(**names) in message
    assert set(re.findall(r"--[a-z][a-z-]*", message)) <= (FLAGS if is_command_line else set())
    if not is_command_line:
        assert set(re.findall("`([a-z_]+)[=`]", message)) <= PARAMETERS
    assert not OF_OTHER_VERBS.search(message)
    assert not list(tmp_path.glob("*.run"))
