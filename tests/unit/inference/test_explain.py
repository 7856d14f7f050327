"""Heat maps of image files: they lie over that part of a file which the model has seen."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.unit.networks.test_heat_maps import Convolutional
from torch import Tensor

from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing, FramingMode
from train_pytorch_model.inference.explain import explain

HEIGHT, WIDTH, CUE = 128, 192, 32
REGIONS = {"crop": (1 / 6, 0, 2 / 3, 1), "pad": (0, 0, 1, 1), "squash": (0, 0, 1, 1)}


@pytest.mark.parametrize("mode", REGIONS)
@pytest.mark.parametrize("place", [(8, 48), (80, 112)])
def test_the_heat_of_a_framed_image_lies_over_the_cue(
    mode: FramingMode, place: tuple[int, int], tmp_path: Path
) -> None:
    (top, left), pixels = place, np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
    pixels[top : top + CUE, left : left + CUE] = (0, 0, 255)
    for name in ("image.png", "gone.png"):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "a" / name)
    images = open_image_directory(tmp_path, "Dataset")
    (tmp_path / "a" / "gone.png").unlink()
    spec = ClassifierSpec("", False, ("a", "b"), Framing(64, 64, 1, mode), (0, 0, 0), (1, 1, 1))

    gone, heat = explain(Convolutional(), spec, images, np.array([0, 1]))
    assert gone is None
    assert heat is not None
    assert heat.region == pytest.approx(REGIONS[mode])
    picture = Image.open(io.BytesIO(base64.b64decode(heat.picture.partition(",")[2]))).convert(
        "RGBA"
    )
    x, y, width, height = (
        round(part * side) for part, side in zip(heat.region, (WIDTH, HEIGHT) * 2, strict=True)
    )
    opacity = np.zeros((HEIGHT, WIDTH))
    opacity[y : y + height, x : x + width] = np.asarray(picture.resize((width, height)))[..., 3]
    assert opacity[top : top + CUE, left : left + CUE].sum() >= 0.7 * opacity.sum()


class Opaque(Convolutional):
    """No gradient can be computed of it."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).detach()


def test_a_network_that_cannot_be_explained_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "a" / "image.png")
    images = open_image_directory(tmp_path, "Dataset")
    spec = ClassifierSpec("", False, ("a", "b"), Framing(64, 64, 1), (0, 0, 0), (1, 1, 1))
    with caplog.at_level("WARNING", logger="train_pytorch_model"):
        assert explain(Opaque(), spec, images, np.array([0])) == [None]
    assert "The page has no heat maps: RuntimeError: " in caplog.text
