"""`convert`: its command line, output directory and messages."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.painting import paint_folders
from tests.programs.program import assert_refused, run_program
from train_pytorch_model.formats.image_directory import open_image_directory


def test_an_archive_becomes_an_image_directory(folders: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "flowers"), "zip", folders, "training")
    ended = run_program("convert", "--input", archive, "--output", tmp_path / "images")
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout == (
        f"Reading {archive}\nConverting 12 images of 3 categories\nThe 12 images are in"
        f" {tmp_path}/images\n"
    )
    images = open_image_directory(tmp_path / "images", "Dataset")
    assert images.categories == ("blue", "green", "red")
    assert images.class_counts().tolist() == [4, 4, 4]


def test_quiet_prints_only_warnings(tmp_path: Path) -> None:
    photos = paint_folders(tmp_path / "photos", 2, ("red",)) / "red"
    (photos / "broken.png").write_bytes(b"")
    ended = run_program("convert", "--input", photos, "--output", tmp_path / "images", "--quiet")
    assert (ended.status, ended.stdout) == (0, "")
    assert ended.stderr.startswith(
        "Warning: 1 unreadable image is left out:\n  Input dataset: 'broken.png': "
    )
    loud = run_program("convert", "--input", photos, "--output", tmp_path / "again")
    assert "Converting 3 images without categories\n" in loud.stdout


def test_invalid_inputs_and_outputs_are_refused(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = run_program("convert", "--input", tmp_path / "no.zip", "--output", out)
    assert_refused(
        ended,
        3,
        f'InvalidDatasetError: Input dataset "{tmp_path}/no.zip" is not valid, reason: there',
    )
    inside = folders / "training" / "images"
    ended = run_program("convert", "--input", folders / "training", "--output", inside)
    message = (
        f"--output {inside} is inside --input {folders}/training. Name a directory that is"
        f" elsewhere."
    )
    assert_refused(ended, 2, f"OutputDirectoryError: {message}\n")
    ended = run_program("convert", "--input", folders / "training", "--output", folders)
    assert_refused(
        ended, 2, f"OutputDirectoryError: --output {folders} is not empty: it holds training, valid"
    )
    assert run_program("convert", "--input", folders / "training").status == 2
    assert list(tmp_path.iterdir()) == []
    assert not inside.exists()


def test_ctrl_c_leaves_no_output(tmp_path: Path) -> None:
    image = (paint_folders(tmp_path / "photos", 1, ("red",)) / "red/0.png").read_bytes()
    for index in range(20_000):
        (tmp_path / f"photos/red/{index}.png").write_bytes(image)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "train_pytorch_model",
            "convert",
            "--input",
            tmp_path / "photos",
            "--output",
            out,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (out / "image/0_300.png").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate()
    assert (process.returncode, errors) == (130, "\nInterrupted. No output was written.\n"), said
    assert not out.exists()
