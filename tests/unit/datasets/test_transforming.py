"""Image operations: torchvision's results, in order, and reasons where they do not fit an image."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.painting import paint
from torchvision.transforms import InterpolationMode, v2

from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.datasets.transforming import ImageTransform, OperationError
from train_pytorch_model.formats import transformation_directory as ops

EACH = [
    (ops.Resize(20), v2.Resize(20)),
    (ops.Resize([20, 15], "nearest"), v2.Resize([20, 15], InterpolationMode.NEAREST)),
    (ops.Resize(20, max_size=24), v2.Resize(20, max_size=24)),
    (ops.CenterCrop(20), v2.CenterCrop(20)),
    (ops.CenterCrop([60, 20]), v2.CenterCrop([60, 20])),
    (ops.Pad(3), v2.Pad(3)),
    (ops.Pad([1, 2, 3, 4], fill=[9, 8, 7]), v2.Pad([1, 2, 3, 4], fill=[9, 8, 7])),
    (ops.Pad(50, padding_mode="reflect"), v2.Pad(50, padding_mode="reflect")),
    (ops.ColorJitter(), v2.ColorJitter()),
    (ops.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)),
    (ops.ColorJitter(brightness=[0.2, 0.5]), v2.ColorJitter(brightness=(0.2, 0.5))),
    (ops.Grayscale(), v2.Grayscale()),
    (ops.Grayscale(3), v2.Grayscale(3)),
    (ops.RandomResizedCrop(16), v2.RandomResizedCrop(16)),
    (
        ops.RandomResizedCrop(16, scale=[0.1, 0.2], ratio=[1, 1]),
        v2.RandomResizedCrop(16, scale=(0.1, 0.2), ratio=(1, 1)),
    ),
    (ops.RandomCrop(20), v2.RandomCrop(20)),
    (
        ops.RandomCrop(44, padding=4, padding_mode="edge"),
        v2.RandomCrop(44, padding=4, padding_mode="edge"),
    ),
    (ops.RandomCrop(60, pad_if_needed=True), v2.RandomCrop(60, pad_if_needed=True)),
    (ops.RandomHorizontalFlip(), v2.RandomHorizontalFlip()),
    (ops.RandomHorizontalFlip(1), v2.RandomHorizontalFlip(1)),
    (ops.RandomVerticalFlip(), v2.RandomVerticalFlip()),
    (ops.RandomRotation(30), v2.RandomRotation(30)),
    (
        ops.RandomRotation([10, 20], "bilinear", True),
        v2.RandomRotation([10, 20], InterpolationMode.BILINEAR, True),
    ),
    (ops.RandomAffine(30), v2.RandomAffine(30)),
    (
        ops.RandomAffine(5, translate=[0.1, 0.2], scale=[0.5, 1.5], shear=[-5, 5, -3, 3], fill=40),
        v2.RandomAffine(5, translate=(0.1, 0.2), scale=(0.5, 1.5), shear=[-5, 5, -3, 3], fill=40),
    ),
    (ops.RandomGrayscale(0.5), v2.RandomGrayscale(0.5)),
    (ops.RandomPerspective(), v2.RandomPerspective()),
    (ops.RandomPerspective(0.2, 1, fill=[1, 2, 3]), v2.RandomPerspective(0.2, 1, fill=[1, 2, 3])),
]


def test_every_operation_is_compared() -> None:
    assert {operation.name for operation, _ in EACH} == set(ops.OPERATIONS)


@pytest.mark.parametrize(("operation", "theirs"), EACH, ids=lambda value: str(value)[:60])
def test_an_operation_does_what_torchvision_does(
    operation: ops.Operation, theirs: v2.Transform
) -> None:
    apply = ImageTransform([operation], seed=1)
    image = paint("green", 1, (50, 40))
    for index in range(6):
        torch.manual_seed(derive_seed(1, "transform", index, 0))
        expected = theirs(image)
        found = apply(image, index)
        assert found.mode == expected.mode
        assert np.array_equal(np.asarray(found), np.asarray(expected))


def test_operations_are_applied_in_their_order() -> None:
    image = paint("red", 1, (50, 40))
    crop_then_resize = ImageTransform([ops.CenterCrop(20), ops.Resize(8)], 1)(image, 0)
    assert np.array_equal(
        np.asarray(crop_then_resize), np.asarray(v2.Resize(8)(v2.CenterCrop(20)(image)))
    )


def test_repeated_operations_draw_independently() -> None:
    apply = ImageTransform([ops.RandomHorizontalFlip(), ops.RandomHorizontalFlip()], 1)
    image = paint("red", 1, (8, 8))
    unchanged = [
        np.array_equal(np.asarray(apply(image, index)), np.asarray(image)) for index in range(40)
    ]
    assert 8 < sum(unchanged) < 32


@pytest.mark.parametrize(
    ("operation", "size", "reason"),
    [
        (
            ops.RandomCrop(20),
            (30, 10),
            "RandomCrop cannot be applied to 30 x 10 pixels: Required crop size (20, 20) is larger"
            " than input"
            " image size (10, 30)",
        ),
        (
            ops.RandomPerspective(p=1),
            (1, 1),
            "RandomPerspective cannot be applied to 1 x 1 pixels: ",
        ),
        (
            ops.Resize(4096),
            (1, 30),
            "Resize cannot be applied to 1 x 30 pixels: 4,096 x 122,880 pixels would be more than"
            " 90,000,000",
        ),
        (
            ops.Pad(4096),
            (1, 30_000),
            "Pad cannot be applied to 1 x 30000 pixels: 8,193 x 38,192 pixels would be more than"
            " 90,000,000",
        ),
        (
            ops.RandomRotation(5, expand=True),
            (1, 30_000),
            "RandomRotation cannot be applied to 1 x 30000 pixels: 30,003 x 30,003 pixels would be"
            " more than"
            " 90,000,000",
        ),
    ],
)
def test_an_operation_that_does_not_fit_the_image_gives_a_reason(
    operation: ops.Operation, size: tuple[int, int], reason: str
) -> None:
    with pytest.raises(OperationError) as raised:
        ImageTransform([operation], 1)(Image.new("RGB", size), 0)
    assert str(raised.value).startswith(reason)
