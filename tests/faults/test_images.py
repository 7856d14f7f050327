"""Image folders that were never cleaned: valid images are trained on, other files are listed."""

import csv
import os
import shutil
import signal
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.faults.file_injections import permissions_count, remove_file_at_open, unreadable_for_rank
from tests.faults.injections import signal_at_step
from tests.faults.trials import Bench, Injection, result_of
from tests.painting import encode, paint
from tests.pictures import png_of
from train_pytorch_model.image_classifier.unidentified import READABLE_FORMATS

NO_IMAGE = f"not an image of a known format ({READABLE_FORMATS})"


def good_files() -> dict[bytes, bytes]:
    """Unusual but valid file names and contents."""
    image = paint("red", 1)
    turned = Image.Exif()
    turned[0x0112] = 6
    deep = Image.fromarray(np.linspace(0, 65535, 32 * 32, dtype=np.uint16).reshape(32, 32))
    animated = {"save_all": True, "append_images": [paint("blue", 1)]}
    return {
        b"two\nlines.png": encode(image),
        "😀 größe.png".encode(): encode(image),
        b"caf\xe9.png": encode(image),
        b"-rf; touch evil.png": encode(image),
        b"CMYK.JPG": encode(image.convert("CMYK"), "JPEG"),
        b"16 bit.png": encode(deep),
        b"palette.png": encode(image.convert("P"), "PNG", transparency=3),
        b"alpha.png": encode(image.convert("RGBA")),
        b"animated.webp": encode(image, "WEBP", **animated),
        b"animated gif.png": encode(image, "GIF", **animated),
        b"turned.jpeg": encode(image, "JPEG", exif=turned),
        b"one pixel.bmp": encode(image.resize((1, 1)), "BMP"),
        b"a jpeg.png": encode(image, "JPEG"),
    }


def unreadable_files() -> dict[str, tuple[bytes, str]]:
    """Name → content, and the start of the reason for leaving it out."""
    rows = bytes(12_000 * (1 + 12_000 // 8))
    return {
        "empty.png": (
            b"",
            "the file is empty: a download that failed, or a placeholder of cloud storage",
        ),
        "text.jpg": (b"no image", NO_IMAGE),
        "truncated.png": (encode(paint("red", 2))[:-900], "OSError: "),
        "header.png": (
            png_of(30_000, 30_000, 1, 0, b""),
            "DecompressionBombError: Image size (900000000 pixels) exceeds",
        ),
        "bomb.png": (
            png_of(12_000, 12_000, 1, 0, zlib.compress(rows)),
            "12000 x 12000 pixels are more than 90,000,000",
        ),
        "locked.png": (encode(paint("red", 3)), "no permission to read the file"),
    }


@pytest.mark.parametrize("ranks", [1, 2])
def test_unusual_images_are_trained_on_and_unreadable_ones_are_listed(
    bench: Bench, tmp_path: Path, ranks: int
) -> None:
    training, output = tmp_path / "training", tmp_path / "trained"
    shutil.copytree(bench.folders / "training", training)
    for name, content in good_files().items():
        Path(os.fsdecode(os.fsencode(training / "red") + b"/" + name)).write_bytes(content)
    reasons = {}
    for file_name, (content, reasons[file_name]) in unreadable_files().items():
        (training / "red" / file_name).write_bytes(content)
    (training / "red" / "locked.png").chmod(0)
    os.mkfifo(training / "red" / "fifo.png")
    (training / "red" / "link.png").symlink_to("/etc/passwd")
    (training / "red" / ".hidden.png").write_bytes(b"")
    before = changed_at(training)
    listed = (
        len(list((bench.folders / "training").rglob("*.png"))) + len(good_files()) + len(reasons)
    )
    gone = {training / "green" / "3.png": 1, training / "green" / "4.png": listed}
    injections: list[Injection] = [
        partial(permissions_count),
        *(
            partial(remove_file_at_open, number=number, below=f"{training}/", path=str(path))
            for path, number in gone.items()  # before its header is read, and at the last header
        ),
    ]
    options = "--training-dataset", str(training), "--batch-size", "2"
    ended = bench.train(output, *options, injections=injections, ranks=ranks)
    assert set(ended.statuses) == {0}, ended
    assert "Traceback" not in ended.stderr
    assert len(result_of(output).metrics) == 2
    in_headers = len(reasons) - len(["truncated.png"]) + len(["3.png"])
    assert f"Images      {listed - in_headers} for training, 9 for validation\n" in ended.stdout
    assert_unreadable(output, {**reasons, **{path.name: "the file is gone" for path in gone}})
    assert changed_at(training) == {path: at for path, at in before.items() if path not in gone}

    scores = tmp_path / "scores"
    ports = "--trained-model", output, "--dataset", training, "--scored-dataset", scores
    scored = bench.launch(["score", *map(str, ports)], [partial(permissions_count)], ranks).wait()
    assert set(scored.statuses) == {0}, scored
    assert_unreadable(scores, reasons)
    with (scores / "scores.csv").open(errors="surrogateescape", newline="") as file:
        names = [os.fsencode(row["file_name"]) for row in csv.DictReader(file)]
    assert len(names) == listed - len(reasons) - len(gone)
    assert {b"red/" + name for name in good_files()} <= set(names)


def test_an_image_that_one_rank_cannot_read_is_left_out_by_all(bench: Bench, output: Path) -> None:
    """Rank 0 fails when it reads the header; rank 1 when it decodes the image, in epoch 1."""
    for rank, name in enumerate(("0.png", "1.png")):
        broken = bench.folders / "training" / "blue" / name
        fails = partial(unreadable_for_rank, rank=rank, path=str(broken))
        trained = output / name
        ended = bench.train(trained, injections=[fails], ranks=2)
        assert set(ended.statuses) == {0}, ended
        assert (
            "Warning: Other images exist or are readable for rank 1; those of rank 0 are used.\n"
            in (ended.stdout)
        )
        assert unreadable_in(trained).keys() == {name}
    ports = "--trained-model", trained, "--dataset", bench.folders / "training"
    for verb, flag in (("score", "--scored-dataset"), ("evaluate", "--output")):
        job = bench.launch([verb, *map(str, (*ports, flag, output / verb))], [fails], ranks=2)
        ended = job.wait()
        assert ended.statuses == [0, 0], ended
        assert "those of rank 0 are used." in ended.stdout
        assert not (
            output / verb / "bad_images.csv"
        ).exists()  # there is one batch, and rank 0 has it


def test_images_left_out_stay_left_out_when_the_folder_is_cleaned_before_resuming(
    bench: Bench, tmp_path: Path
) -> None:
    """Even though the other images may then have different rows."""
    training, outputs = tmp_path / "training", [tmp_path / "undisturbed", tmp_path / "interrupted"]
    shutil.copytree(bench.folders / "training", training)
    for name, content in {"0a.png": b"no image", "3.png": encode(paint("blue", 3))[:-900]}.items():
        (training / "blue" / name).write_bytes(content)
    port = "--training-dataset", str(training)
    assert bench.train(outputs[0], *port).statuses == [0]
    stop = partial(signal_at_step, number=6, signals=[signal.SIGTERM])
    assert bench.train(outputs[1], *port, injections=[stop]).statuses == [128 + signal.SIGTERM]
    (training / "blue" / "0a.png").unlink()
    ended = bench.train(outputs[1], *port)
    assert ended.statuses == [0], ended
    assert "Resumed     in epoch 2" in ended.stdout
    assert result_of(outputs[1]) == result_of(outputs[0])
    assert unreadable_in(outputs[1]) == unreadable_in(outputs[0])


def unreadable_in(output: Path) -> dict[str, str]:
    """Name → reason."""
    with (output / "bad_images.csv").open(errors="surrogateescape", newline="") as file:
        rows = list(csv.DictReader(file))
    reasons = {row["file_name"].partition("/")[2]: row["reason"] for row in rows}
    assert len(reasons) == len(rows)  # each is listed once
    return reasons


def assert_unreadable(output: Path, reasons: Mapping[str, str]) -> None:
    listed = unreadable_in(output)
    assert listed.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert listed[name].startswith(reason)


def changed_at(root: Path) -> dict[Path, int]:
    """All files and their modification times, in ns."""
    return {path: path.lstat().st_mtime_ns for path in root.rglob("*") if not path.is_dir()}
