"""The size that a file's header tells is that of the decoded image, wherever it is turned."""

import io
import zlib

import pytest
from tests.image_parts import (
    chunk,
    entry,
    exif_of,
    exif_segment,
    jpeg_with,
    png_with,
    xmp_chunk,
    xmp_segment,
)
from tests.painting import encode
from tests.pictures import HEIGHT, WIDTH, picture

from train_pytorch_model.image_classifier.decoding import decode, read_size

TURNED = exif_of(entry(6))
EXIF = chunk(b"eXIf", TURNED)
XMP = b'<a tiff:Orientation="6"/>'
# As ImageMagick writes EXIF.
PROFILE = b"\nexif\n%8d\n%s\n" % (len(TURNED), TURNED.hex().encode())
RAW_PROFILE = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(PROFILE))

TURNED_FILES = {
    "JPEG, XMP": jpeg_with(xmp_segment(XMP)),
    "JPEG, long": jpeg_with(exif_segment(exif_of(entry(6, kind=4)))),
    "PNG": png_with(EXIF),
    "PNG, after the pixels": png_with(after=(EXIF,)),
    "PNG, the last of two": png_with(chunk(b"eXIf", exif_of(entry(1))), after=(EXIF,)),
    "PNG, XMP": png_with(xmp_chunk(XMP)),
    "PNG, XMP after the pixels": png_with(after=(chunk(b"tEXt", b"a\0b"), xmp_chunk(XMP))),
    "PNG, raw profile": png_with(RAW_PROFILE),
    "PNG, raw profile after the pixels": png_with(after=(RAW_PROFILE,)),
    "WebP, XMP": encode(picture(), "WEBP", xmp=XMP, lossless=True),
    "TIFF": encode(picture(), "TIFF", exif=b"Exif\0\0" + TURNED),
}


@pytest.mark.parametrize("name", TURNED_FILES)
def test_a_turned_image_has_the_size_that_its_header_tells(name: str) -> None:
    file = io.BytesIO(TURNED_FILES[name])
    assert decode(file).size == (HEIGHT, WIDTH)
    file.seek(0)
    assert read_size(file) == (WIDTH, HEIGHT)


def test_the_size_of_a_png_is_read_without_its_pixels() -> None:
    png = png_with(EXIF)
    place = png.index(b"IDAT") + 4
    damaged = png[:place] + bytes(20) + png[place + 20 :]
    assert read_size(io.BytesIO(damaged)) == (WIDTH, HEIGHT)
    late = png_with(after=(EXIF,))
    place = late.index(b"IDAT") + 4
    damaged = late[:place] + bytes(20) + late[place + 20 :]
    assert read_size(io.BytesIO(damaged)) == (WIDTH, HEIGHT)
