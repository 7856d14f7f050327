"""Lines of C libraries are kept from the terminal, and nothing else."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.machine.library_lines import LibraryLines
from train_pytorch_model.reports.pictures import thumbnail

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="on Linux only")


def damaged_tiff(path: Path) -> Path:
    """A file of whose pixels libtiff writes a line."""
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, compression="tiff_lzw")
    content = bytearray(path.read_bytes())
    for index in range(200, 1200, 7):
        content[index] ^= 0xFF
    path.write_bytes(content)
    return path


def test_a_line_becomes_part_of_the_reason_for_an_unreadable_image(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = damaged_tiff(tmp_path / "a.tif")
    decoders = Decoders()
    with pytest.raises(UnreadableImageError, match=r"decoder error -2 \(.*not yet in table"):
        decoders.decode(path, 32)
    decoders.close()
    assert thumbnail(path) == ""
    assert capfd.readouterr().err == ""


def test_only_what_is_written_inside_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    lines = LibraryLines()
    os.write(2, b"before\n")
    with lines:
        os.write(2, b"first\n")
        with lines:  # of another thread
            os.write(2, b"second\n\n")
        os.write(2, b"third")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"
    assert lines.take() == "third"
    with pytest.raises(ValueError, match="a crash"), lines:
        raise ValueError("a crash")
    os.write(2, b"shown\n")
    assert capfd.readouterr().err == "shown\n"
    assert lines.take() == ""
