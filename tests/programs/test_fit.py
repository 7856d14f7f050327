"""`fit` and its Python form: one folder becomes a tested model, the same as by the single verbs."""

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.painting import paint_folders
from tests.programs.program import assert_refused, run_program
from train_pytorch_model.formats.trained_directory import differences

MODEL = ("--architecture", "mobilenet_v3_small")
OPTIONS = ("--epochs", "2", "--batch-size", "8")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint_folders(tmp_path_factory.mktemp("fit") / "photographs", 10)


@pytest.fixture(scope="module")
def fitted(photographs: Path) -> Path:
    ended = run_program("fit", photographs, *MODEL, *OPTIONS, "--from-scratch")
    assert ended.status == 0, ended.stderr
    assert "3 categories; images: 18 for training, 6 for validation, 6 for test" in ended.stdout
    assert "On 6 test images" in ended.stdout
    assert "same directory" not in ended.stderr
    return photographs.with_name("photographs-model")


def test_the_model_is_that_of_the_single_verbs(
    photographs: Path, fitted: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / name for name in ("training", "validation", "test")]
    outputs = [
        word for number, part in enumerate(parts, 1) for word in (f"--output-{number}", part)
    ]
    run_program("split", "--input", photographs, "--fractions", "0.6", "0.2", "0.2", *outputs)
    run_program("init-model", *MODEL, "--output", tmp_path / "untrained")
    ended = run_program(
        "train", "--untrained-model", tmp_path / "untrained", "--training-dataset", parts[0],
        "--validation-dataset", parts[1], "--trained-model", tmp_path / "trained", *OPTIONS,
    )  # fmt: skip
    assert ended.status == 0, ended.stderr
    assert (tmp_path / "trained/model").read_bytes() == (fitted / "model").read_bytes()


def test_nothing_is_left_beside_the_model(fitted: Path) -> None:
    assert sorted(path.name for path in fitted.parent.iterdir()) == [
        "photographs",
        "photographs-model",
    ]
    assert (fitted / "evaluation/evaluation.html").exists()
    rows = (fitted / "split.csv").read_text().splitlines()[1:]
    assert (
        sorted(row.rpartition(",")[2] for row in rows)
        == ["test"] * 6 + ["training"] * 18 + ["validation"] * 6
    )


def test_report_and_test_link_each_other_and_are_in_the_manifest(fitted: Path) -> None:
    report = (fitted / "report.html").read_text()
    page = (fitted / "evaluation/evaluation.html").read_text()
    verdict = re.compile(r'<p class="verdict">(.*?)</p>')
    assert verdict.findall(report) == verdict.findall(page)
    assert '<a href="evaluation/evaluation.html">' in report
    assert '<a href="../report.html">' in page
    files = json.loads((fitted / "manifest.json").read_text())["files"]
    assert {"report.html", "evaluation/evaluation.html", "evaluation/_meta.yaml"} <= files.keys()
    assert differences(fitted) == []


def test_the_same_command_finds_its_work_done(photographs: Path, fitted: Path) -> None:
    rooms = ("distributed.story", "stories.init_model", "stories.train")
    without_torch = {f"train_pytorch_model.{room}": None for room in rooms}
    with patch.dict(sys.modules, without_torch):  # importing one fails
        ended = run_program("fit", photographs, *MODEL, *OPTIONS, "--from-scratch")
    assert ended.status == 0, ended.stderr
    assert "already complete" in ended.stdout
    other = run_program("fit", photographs, *MODEL, "--epochs", "1", "--from-scratch")
    message = f"OutputDirectoryError: --output {fitted} holds a finished model, of other images"
    assert_refused(other, 2, message)
    assert "--overwrite` replaces it" in other.stderr


def test_mistakes_are_refused(photographs: Path, tmp_path: Path) -> None:
    assert_refused(
        run_program("fit", tmp_path / "no"), 3, f'InvalidDatasetError: Dataset "{tmp_path}/no"'
    )
    inside = run_program("fit", photographs, "--output", photographs / "model")
    assert_refused(
        inside, 2, f"OutputDirectoryError: --output {photographs}/model is inside FOLDER"
    )


def test_an_archive_of_parts_is_unpacked_once(photographs: Path, tmp_path: Path) -> None:
    for part in ("train", "test"):
        shutil.copytree(photographs, tmp_path / "parts" / part)
    archive = shutil.make_archive(str(tmp_path / "flowers"), "zip", tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts")
    options = (*MODEL, "--epochs", "1", "--from-scratch", "--image-size", "16")
    first = run_program("fit", archive, *options)
    assert first.status == 0, first.stderr
    assert f"{archive} is now unpacked in {tmp_path}/flowers-images" in first.stdout
    assert "images: 24 for training, 6 for validation, 30 for test" in first.stdout
    assert (tmp_path / "flowers-images/train/red/0.png").exists()
    again = run_program("fit", archive, *options)
    assert (again.status, "already complete" in again.stdout) == (0, True)
    assert {path.name for path in tmp_path.iterdir()} == {
        "flowers-images",
        "flowers-model",
        "flowers.zip",
    }


SCRIPT = """
    import sys, time
    started = time.perf_counter()
    from train_pytorch_model import fit, load
    assert "torch" not in sys.modules
    import numpy as np
    from PIL import Image

    folder, output = sys.argv[1:]
    model = fit(
        folder, output, epochs=1, architecture="mobilenet_v3_small", from_scratch=True, quiet=True
    )
    print(model)
    red = f"{folder}/red/0.png"
    table = model.predict([red, np.zeros((9, 5, 3), np.uint8), Image.new("L", (4, 4)), "no.png"])
    errors, are_unlabelled = table["error"].fillna("").tolist(), table["label"].isna().tolist()
    print(table["image"].tolist(), errors, are_unlabelled)
    print(round(float(table.iloc[0, 3:6].sum()), 6), len(load(output).predict(folder + "/red")))
    pixels = np.random.default_rng(0).integers(0, 256, (300, 200, 4), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.fromarray(pixels).save(f"{output}.png", exif=exif)
    images = (f"{output}.png", Image.open(f"{output}.png"))
    of_file, opened = (model.predict(image).iloc[:, 1:] for image in images)
    print(of_file.equals(opened))
    evaluated = load(output).evaluate(folder)
    pages = [shown._repr_html_() for shown in (evaluated, model)]
    print(evaluated.metrics["images"], *("iframe" in page for page in pages))
    print(repr(evaluated).rpartition(' ')[0])
    print(model.evaluation.accuracy == model.accuracy, model.report.path.name, list(model.suspects))
    for unknown in ("epoch", "lr", "leraning_rate", "device"):
        try:
            fit(folder, **{unknown: 1})
        except Exception as error:
            print(type(error).__name__, error)
"""


def test_a_script_without_a_main_guard_can_fit_and_predict(
    photographs: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ended = subprocess.run(
        [sys.executable, script, photographs, tmp_path / "model"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        f"Model({str(tmp_path / 'model')!r}: mobilenet_v3_small, 3 categories)",
        f"['{photographs}/red/0.png', '1', '2', 'no.png'] ['', '', '', 'there is no such file or"
        " folder'] [False, False, False, True]",
        "1.0 10",
        "True",
        "30 True True",
        "Evaluated(30 images: accuracy",
        "True report.html ['file', 'given', 'proposed', 'wrong', 'dataset', 'original']",
        "ParameterError fit has no option 'epoch'. Did you mean 'epochs'?",
        "ParameterError fit has no option 'lr'. Did you mean 'learning_rate'?",
        "ParameterError fit has no option 'leraning_rate'. Did you mean 'learning_rate'?",
        "ParameterError fit has no option 'device': all GPUs are used, else the CPU."
        " CUDA_VISIBLE_DEVICES=0"
        " before the command takes the first GPU only, CUDA_VISIBLE_DEVICES=-1 the CPU.",
    ]


def test_a_table_tells_the_categories_and_the_parts(photographs: Path, tmp_path: Path) -> None:
    images = tmp_path / "birds" / "images"
    images.mkdir(parents=True)
    for path in photographs.glob("*/*.png"):
        shutil.copy(path, images / f"{path.parent.name}{path.name}")
    rows = ["Foto;class;species;split"]
    for number, path in enumerate(sorted(images.iterdir())):
        part = ("train", "train", "train", "dev", "holdout")[number % 5]
        colour = path.stem[:-1]
        rows.append(f"C:\\{path.stem.upper()}.PNG;Aves {number % 2};{colour}ish;{part}")
    (tmp_path / "birds" / "Bestimmung.csv").write_text("\n".join(rows), encoding="utf-8-sig")
    options = (*MODEL, "--epochs", "1", "--from-scratch", "--image-size", "16")
    unclear = run_program("fit", tmp_path / "birds", *options)
    assert_refused(unclear, 3, "InvalidDatasetError")
    assert "'class' (2 different values), 'species' (3 different values)" in unclear.stderr
    ended = run_program("fit", tmp_path / "birds", *options, "--label-column", "species")
    assert ended.status == 0, ended.stderr
    assert "Categories from column 'species' of Bestimmung.csv (not used: class):" in ended.stdout
    before, _, _ = ended.stdout.partition("loading PyTorch")
    assert "blueish           6           2          2" in before
    written = (tmp_path / "birds-model" / "split.csv").read_text().splitlines()
    assert "images/blue3.png,blueish,validation" in written
    assert "images/red9.png,redish,test" in written
