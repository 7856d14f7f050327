"""What comes before an exported network makes the pixels of the served model."""

import io

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tests.onnx_sessions import framing_alone
from tests.painting import encode, paint, paint_scene

from train_pytorch_model.image_classifier.pixels import read_pixels, reduce
from train_pytorch_model.image_classifier.spec import Framing, FramingMode

SIZES = [(500, 375), (1300, 1900), (40, 90), (64, 48), (90, 700), (3, 5)]


@pytest.mark.parametrize("mode", ["crop", "pad", "squash"])
def test_pixels_are_framed_within_one_grey_level(
    mode: FramingMode, capfd: pytest.CaptureFixture[str]
) -> None:
    framing = Framing(48, 64, 0.875, mode)
    session = framing_alone(framing, "image")
    for size in SIZES:
        image = np.array(paint_scene(1, size))
        (framed,) = session.run(None, {"image": image})
        expected = framing.apply(Image.fromarray(reduce(image, framing.short_side)))
        assert np.abs(framed[0].transpose(1, 2, 0).astype(int) - expected).max() <= 1, size
    assert capfd.readouterr().err == ""  # no warnings of ONNX Runtime


def test_a_jpeg_is_decoded_at_the_scale_of_the_served_model() -> None:
    framing = Framing(48, 64, 0.875)
    session = framing_alone(framing, "file")
    for size in [(70, 90), (301, 203), (450, 610), (1203, 901)]:
        noise = np.random.default_rng(0).integers(40, 216, size[::-1], dtype=np.uint8)
        image = Image.blend(Image.fromarray(noise).convert("RGB"), paint("red", 1, size), 0.3)
        for colours in ("RGB", "L", "CMYK"):
            file = encode(image.convert(colours), "JPEG")
            (framed,) = session.run(None, {"file": np.frombuffer(file, np.uint8)})
            expected = framing.apply(
                Image.fromarray(read_pixels(io.BytesIO(file), framing.short_side))
            )
            difference = np.abs(framed[0].transpose(1, 2, 0).astype(int) - expected).max()
            assert difference <= 3, (size, colours)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_the_colours_of_a_jpeg_are_interpolated_as_by_the_served_model(subsampling: str) -> None:
    framing = Framing(48, 64, 0.875)
    session = framing_alone(framing, "file")
    for size in [(90, 75), (350, 263), (805, 611)]:
        blots = np.random.default_rng(0).integers(
            60, 196, (size[1] // 9, size[0] // 9, 3), dtype=np.uint8
        )
        image = Image.fromarray(blots).resize(size, Image.Resampling.NEAREST)
        file = encode(image, "JPEG", subsampling=subsampling, quality=95)
        (framed,) = session.run(None, {"file": np.frombuffer(file, np.uint8)})
        expected = framing.apply(Image.fromarray(read_pixels(io.BytesIO(file), framing.short_side)))
        difference = np.abs(framed[0].transpose(1, 2, 0).astype(int) - expected)
        assert difference.max() <= 15, size
        assert difference.mean() < 0.8, size


def test_a_png_with_the_header_of_a_jpeg_in_it_keeps_its_colours() -> None:
    framing = Framing(48, 64, 0.875)
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    text = PngInfo()
    text.add_text("thumbnail", b"\xff\xc0\0\x11\x08\0\1\0\1\3\1\x22".decode("latin-1"))
    file = encode(Image.fromarray(noise), "PNG", pnginfo=text)
    (framed,) = framing_alone(framing, "file").run(None, {"file": np.frombuffer(file, np.uint8)})
    expected = framing.apply(Image.fromarray(noise))
    assert np.abs(framed[0].transpose(1, 2, 0).astype(int) - expected).max() <= 1


def test_a_damaged_file_neither_ends_the_process_nor_blocks_it() -> None:
    session = framing_alone(Framing(48, 64, 0.875), "file")
    jpeg = encode(paint_scene(1), "JPEG")
    (framed,) = session.run(None, {"file": np.frombuffer(jpeg[: len(jpeg) // 2], np.uint8)})
    assert framed.shape == (1, 3, 48, 64)
    for other in (b"not an image", encode(paint_scene(1), "WEBP"), b""):
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            session.run(None, {"file": np.frombuffer(other, np.uint8)})
