"""An exported program turns a photograph as the served model does, wherever the file says it."""

import io

import numpy as np
import pytest
from PIL import Image
from tests.image_parts import (
    chunk,
    entry,
    exif_of,
    exif_segment,
    jpeg_with,
    png_with,
    segment,
    xmp_chunk,
    xmp_segment,
)
from tests.onnx_sessions import framing_alone
from tests.pictures import picture

from train_pytorch_model.export.file_segments import MAX_SEGMENTS
from train_pytorch_model.image_classifier.pixels import read_pixels
from train_pytorch_model.image_classifier.spec import Framing

FRAMING = Framing(24, 24, 1.0, "squash")

TURNED = exif_of(entry(6))
BEFORE_IT = [segment(0xFE, b" " * 60_000), segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(60_000))]
ATTRIBUTE = b'<rdf:Description tiff:Make="O" tiff:Orientation="6"/>'
ELEMENT = b"<tiff:Orientation>6</tiff:Orientation>"

TURNED_JPEGS = {
    "short": [exif_segment(TURNED)],
    "of Motorola": [exif_segment(exif_of(entry(6, order=">"), order=">"))],
    "long": [exif_segment(exif_of(entry(6, kind=4)))],
    "behind other entries": [exif_segment(exif_of(entry(3, tag=0x0111), entry(6)))],
    "behind other segments": [*BEFORE_IT, exif_segment(TURNED)],
    "behind bytes that fill": [b"\xff\xff\xff" + exif_segment(TURNED)],
    "XMP attribute": [xmp_segment(ATTRIBUTE)],
    "XMP element": [xmp_segment(ELEMENT)],
    "XMP beside EXIF of something else": [
        exif_segment(exif_of(entry(1, tag=0x0111))),
        xmp_segment(ATTRIBUTE),
    ],
    "EXIF, not XMP": [exif_segment(TURNED), xmp_segment(ATTRIBUTE.replace(b"6", b"3"))],
}
UPRIGHT_JPEGS = {
    "nothing": [],
    "of the thumbnail": [exif_segment(exif_of(entry(1, tag=0x0111), thumbnail=entry(6)))],
    "no entries": [exif_segment(exif_of(thumbnail=entry(6)))],
    "in a comment": [segment(0xFE, b"Exif\0\0" + TURNED)],
    "in a maker's note": [exif_segment(exif_of(entry(1)) + TURNED)],
    "out of range": [exif_segment(exif_of(entry(9)))],
    "a byte": [exif_segment(exif_of(entry(6, kind=1)))],
    "not EXIF": [exif_segment(b"JJ" + TURNED[2:])],
    "cut off": [exif_segment(TURNED[:12])],
    "XMP that EXIF overrules": [exif_segment(exif_of(entry(1))), xmp_segment(ATTRIBUTE)],
    "XMP of a name only": [xmp_segment(b'tiff:Orientation="six" exif:Orientation="6"')],
}
LONG_TEXT = chunk(b"tEXt", b"a\0" + b" " * 70_000)
TURNED_PNGS = {
    "before the pixels": png_with(chunk(b"eXIf", TURNED)),
    "behind a long text": png_with(LONG_TEXT, chunk(b"eXIf", TURNED)),
    "after the pixels": png_with(LONG_TEXT, after=(chunk(b"eXIf", TURNED),)),
    "after many chunks": png_with(after=(chunk(b"eXIf", TURNED),), chunk_bytes=1),
    "XMP": png_with(xmp_chunk(ATTRIBUTE)),
    "XMP after the pixels": png_with(after=(xmp_chunk(ELEMENT),)),
}
UPRIGHT_PNGS = {
    "nothing": png_with(),
    "in a text": png_with(chunk(b"tEXt", b"a\0eXIf" + TURNED)),
    "of the thumbnail": png_with(chunk(b"eXIf", exif_of(thumbnail=entry(6)))),
    "behind the end": png_with() + chunk(b"eXIf", TURNED),
}


TURNED_FILES = {name: jpeg_with(*parts) for name, parts in TURNED_JPEGS.items()} | TURNED_PNGS
UPRIGHT_FILES = {name: jpeg_with(*parts) for name, parts in UPRIGHT_JPEGS.items()} | UPRIGHT_PNGS


def assert_shown(file: bytes, expected: Image.Image) -> None:
    """The program and the served model have the pixels of the expected image."""
    (framed,) = framing_alone(FRAMING, "file").run(None, {"file": np.frombuffer(file, np.uint8)})
    pixels = framed[0].transpose(1, 2, 0).astype(int)
    served = FRAMING.apply(Image.fromarray(read_pixels(io.BytesIO(file), FRAMING.short_side)))
    assert np.abs(pixels - served).mean() < 2
    assert np.abs(pixels - FRAMING.apply(expected)).mean() < 4


@pytest.mark.parametrize("name", TURNED_FILES)
def test_a_photograph_on_its_side_is_turned(name: str) -> None:
    assert_shown(TURNED_FILES[name], picture().transpose(Image.Transpose.ROTATE_270))


@pytest.mark.parametrize("name", UPRIGHT_FILES)
def test_what_does_not_tell_an_orientation_turns_nothing(name: str) -> None:
    assert_shown(UPRIGHT_FILES[name], picture())


def test_the_first_exif_and_the_last_xmp_of_a_jpeg_count() -> None:
    half_turn = picture().transpose(Image.Transpose.ROTATE_180)
    first_exif = jpeg_with(exif_segment(exif_of(entry(3))), exif_segment(TURNED))
    assert_shown(first_exif, half_turn)
    last_xmp = jpeg_with(xmp_segment(ATTRIBUTE), xmp_segment(ATTRIBUTE.replace(b"6", b"3")))
    assert_shown(last_xmp, half_turn)


def test_segments_beyond_a_bound_are_not_looked_at() -> None:
    """A hostile file costs a bounded time; the served model may turn it."""
    comments = [segment(0xFE, b"")] * MAX_SEGMENTS
    file = jpeg_with(*comments, exif_segment(TURNED))
    (framed,) = framing_alone(FRAMING, "file").run(None, {"file": np.frombuffer(file, np.uint8)})
    expected = FRAMING.apply(picture()).astype(int)
    assert np.abs(framed[0].transpose(1, 2, 0) - expected).mean() < 4
