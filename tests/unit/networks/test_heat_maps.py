"""Heat maps: they show the cue by which a network decides, wherever it is, however the network is
built.
"""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from tests.painting import paint_scene
from torch import Tensor, nn

from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.networks.heat_maps import _heat_of_features, heat_map
from train_pytorch_model.reports.pictures import heat_picture

SIDE, CUE = 64, 24
PLACES = [(0, 0), (8, 40), (32, 16)]


class RedOrBlue(nn.Module):
    """Decides by what is redder, or bluer, than anything else is."""

    def __init__(self) -> None:
        super().__init__()
        self.colours = nn.Conv2d(3, 2, 1)
        self.colours.weight.data = torch.tensor([[1.0, -1, -1], [-1, -1, 1]]).view(2, 3, 1, 1)
        self.colours.bias.data.fill_(-0.1)  # type: ignore[union-attr]


class Convolutional(RedOrBlue):
    """In two stages."""

    def __init__(self) -> None:
        super().__init__()
        self.halve = nn.AvgPool2d(2)

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.halve(self.halve(self.colours(images).relu()))
        return found.amax(dim=(2, 3))


class Patches(RedOrBlue):
    """In one stage, whose tokens are mixed before anything is decided."""

    def forward(self, images: Tensor) -> Tensor:
        patches = nn.functional.avg_pool2d(self.colours(images).relu(), 8).flatten(2)  # (B, 2, N)
        return patches.roll(17, dims=2).amax(dim=2)


def scene_with(place: tuple[int, int], colour: int) -> Tensor:
    """(1, 3, SIDE, SIDE), 0 to 1: a grey scene with a square of a colour."""
    grey = np.asarray(paint_scene(1, (SIDE, SIDE)).convert("L"), np.float32) / 255
    pixels = np.repeat(grey[None], 3, axis=0)
    top, left = place
    pixels[:, top : top + CUE, left : left + CUE] = 0
    pixels[colour, top : top + CUE, left : left + CUE] = 1
    return torch.from_numpy(pixels)[None]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("colour", [0, 2])
@pytest.mark.parametrize("kind", [Convolutional, Patches])
def test_the_heat_is_inside_the_cue(
    kind: type[nn.Module], colour: int, place: tuple[int, int]
) -> None:
    heat = heat_map(kind().eval(), scene_with(place, colour))
    assert heat is not None
    assert heat.max() == 1
    assert heat.min() >= 0
    (top, left), scale = place, SIDE // len(heat)
    inside = heat[top // scale : (top + CUE) // scale, left // scale : (left + CUE) // scale]
    assert inside.sum() >= 0.8 * heat.sum()


def test_an_image_without_a_cue_has_no_heat() -> None:
    assert heat_map(Convolutional().eval(), torch.zeros(1, 3, SIDE, SIDE)) is None


@pytest.mark.parametrize(
    ("architecture", "size", "sides"),
    [
        ("resnet18", (64, 96), [(32, 48), (16, 24), (8, 12), (4, 6), (2, 3)]),
        ("densenet121", (64, 64), [(32, 32), (16, 16), (8, 8), (4, 4), (2, 2)]),
        ("mobilenet_v3_small", (64, 64), [(32, 32), (16, 16), (8, 8), (4, 4), (2, 2)]),
        ("swin_t", (64, 64), [(16, 16), (8, 8), (4, 4), (2, 2)]),
        ("timm:test_convnext", (64, 64), [(16, 16), (8, 8), (4, 4), (2, 2)]),
        ("timm:test_vit", (160, 160), [(10, 10)]),
    ],
)
def test_the_stages_of_an_architecture_are_found(
    architecture: str, size: tuple[int, int], sides: list[tuple[int, int]]
) -> None:
    torch.manual_seed(1)
    network, image = build(architecture, False, 3).eval(), torch.randn(1, 3, *size)
    assert [tuple(stage.shape) for stage in _heat_of_features(network, image)] == sides
    assert heat_map(network, image) is not None
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


def test_a_picture_of_heat_is_clear_where_nothing_is() -> None:
    heat = np.zeros((64, 32), np.float32)
    heat[:32] = 1
    uri = heat_picture(heat)
    assert len(uri) < 600
    shown = np.asarray(
        Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGBA")
    )
    assert shown.shape == (32, 16, 4)
    assert (shown[16:, :, 3] == 0).all()
    assert (shown[:16] == [255, 0, 170, 191]).all()
