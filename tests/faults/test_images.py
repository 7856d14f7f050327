"""A folder that nobody has cleaned: what is an image is trained on, what is not is listed."""

import csv
import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.faults.trials import Bench, result_of
from tests.painting import encode, paint


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def good_files() -> dict[bytes, bytes]:
    """Names and contents that are unusual and right."""
    image = paint("red", 1)
    turned = Image.Exif()
    turned[0x0112] = 6
    deep = Image.fromarray(np.linspace(0, 65535, 32 * 32, dtype=np.uint16).reshape(32, 32))
    return {
        b"two\nlines.png": encode(image),
        "😀 größe.png".encode(): encode(image),
        b"caf\xe9.png": encode(image),
        b"-rf; touch evil.png": encode(image),
        b"CMYK.JPG": saved(image.convert("CMYK"), "JPEG"),
        b"16 bit.png": encode(deep),
        b"palette.png": saved(image.convert("P"), "PNG", transparency=3),
        b"alpha.png": encode(image.convert("RGBA")),
        b"animated.webp": saved(image, "WEBP", save_all=True, append_images=[paint("blue", 1)]),
        b"turned.jpeg": saved(image, "JPEG", exif=turned),
        b"one pixel.bmp": encode(image.resize((1, 1)), "BMP"),
        b"a jpeg.png": encode(image, "JPEG"),
    }


BAD = {
    "empty.png": (b"", "not an image of a known format (JPEG, PNG, BMP, GIF, TIFF, WEBP, PPM)"),
    "text.jpg": (b"no image", "not an image of a known format (JPEG, PNG, BMP, GIF, TIFF, WEBP, PPM)"),
    "truncated.png": (encode(paint("red", 2))[:-900], "OSError: "),
    "bomb.ppm": (
        b"P6 30000 30000 255\n",
        "DecompressionBombError: Image size (900000000 pixels) exceeds limit",
    ),
}


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_oddity_is_trained_on_or_listed(bench: Bench, tmp_path: Path, ranks: int) -> None:
    training, output = tmp_path / "training", tmp_path / "trained"
    shutil.copytree(bench.folders / "training", training)
    for name, content in good_files().items():
        Path(os.fsdecode(os.fsencode(training / "red") + b"/" + name)).write_bytes(content)
    for bad_name, (content, _) in BAD.items():
        (training / "red" / bad_name).write_bytes(content)
    os.mkfifo(training / "red" / "fifo.png")
    (training / "red" / "link.png").symlink_to("/etc/passwd")
    (training / "red" / ".hidden.png").write_bytes(b"")
    before = changed_at(training)
    vanishing = training / "blue" / "4.png"
    gone = ("remove_file_at_step", {"number": 0, "path": str(vanishing)})
    ended = bench.train(
        output, "--training-dataset", str(training), "--batch-size", "2", injections=[gone], ranks=ranks
    )
    assert set(ended.statuses) == {0}, ended
    assert "Traceback" not in ended.stderr
    assert len(result_of(output).metrics) == 2
    with (output / "bad_images.csv").open(errors="surrogateescape", newline="") as file:
        listed = {row["file_name"].partition("/")[2]: row["reason"] for row in csv.DictReader(file)}
    assert listed.keys() - {"4.png"} == BAD.keys()
    for bad_name, (_, reason) in BAD.items():
        assert listed[bad_name].startswith(reason)
    assert listed.get("4.png", "the file is gone") == "the file is gone"  # it may have been read before
    assert changed_at(training) == {path: at for path, at in before.items() if path != vanishing}


def changed_at(root: Path) -> dict[Path, int]:
    """All files and when they were changed."""
    return {path: path.lstat().st_mtime_ns for path in root.rglob("*") if not path.is_dir()}
