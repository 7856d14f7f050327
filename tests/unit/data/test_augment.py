"""Augmentation: pure functions of a random stream, and their effects on an image."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipes import decided_recipe

from train_pytorch_model.config.recipe import Augmentation
from train_pytorch_model.data.augment import (
    Augment,
    mirror,
    padded_crop,
    random_resized_crop,
    random_window,
)
from train_pytorch_model.data.framing import frame
from train_pytorch_model.image_classifier.decoding import Pixels
from train_pytorch_model.image_classifier.pixels import resize
from train_pytorch_model.image_classifier.spec import Framing

SIDE = 16
AUGMENTATIONS: tuple[Augmentation, ...] = ("none", "padded-crop", "random-resized-crop")


def noise(width: int, height: int) -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("flip", [True, False])
def test_the_same_stream_gives_the_same_pixels(augmentation: Augmentation, flip: bool) -> None:
    augment = Augment(decided_recipe(augmentation=augmentation, horizontal_flip=flip), SIDE, SIDE)
    image = noise(24, 20)
    before = image.copy()
    image.flags.writeable = False
    np.random.seed(0)
    first = [augment(image, Random(seed)).copy() for seed in range(20)]
    second = [augment(image, Random(seed)) for seed in range(20)]
    assert all((one == other).all() for one, other in zip(first, second, strict=True))
    assert (image == before).all()
    assert {pixels.shape for pixels in first} == {(16, 16, 3)}
    assert {pixels.dtype for pixels in first} == {np.dtype(np.uint8)}
    variants = {pixels.tobytes() for pixels in first}
    assert len(variants) == (1 + flip if augmentation == "none" else len(variants))
    assert len(variants) > 10 or augmentation == "none"


def test_half_of_the_images_are_mirrored() -> None:
    augment = Augment(decided_recipe(augmentation="none"), SIDE, SIDE)
    image = noise(16, 16)
    flips = 0
    for seed in range(400):
        pixels = augment(image, Random(seed))
        is_flipped = bool((pixels == image[:, ::-1]).all())
        assert is_flipped or (pixels == image).all()
        flips += is_flipped
    assert 160 < flips < 240


# ── Random resized crop ──────────────────────────────────────────────────────────────────────────


@given(
    st.integers(1, 300), st.integers(1, 300), st.integers(1, 32), st.integers(1, 32), st.integers()
)
def test_a_random_window_never_leaves_the_image(
    width: int, height: int, to_height: int, to_width: int, seed: int
) -> None:
    pixels = np.full((height, width, 3), (10, 20, 30), dtype=np.uint8)
    cropped = random_resized_crop(pixels, to_height, to_width, 0.08, Random(seed))
    assert cropped.shape == (to_height, to_width, 3)
    assert (cropped == [10, 20, 30]).all()


@pytest.mark.parametrize(("aspect", "min_area"), [(1.0, 0.08), (2.0, 0.08), (1.0, 0.35)])
def test_windows_have_the_documented_areas_and_aspects(aspect: float, min_area: float) -> None:
    found = [random_window(500, 600, aspect, min_area, Random(seed)) for seed in range(500)]
    windows = [window for window in found if window is not None]
    assert len(windows) > 490
    top, bottom, left, right = np.asarray(
        [(rows.start, rows.stop, columns.start, columns.stop) for rows, columns in windows]
    ).T
    assert 0 == top.min() < 150 < top.max()
    assert 0 == left.min() < 150 < left.max()
    assert 400 < bottom.max() <= 500
    assert 500 < right.max() <= 600
    areas = (right - left) * (bottom - top) / (600 * 500)
    assert areas.min() == pytest.approx(min_area, abs=0.01)
    assert 0.75 < areas.max() <= 1
    aspects = (right - left) / (bottom - top) / aspect
    assert aspects.min() == pytest.approx(3 / 4, rel=0.03)
    assert aspects.max() == pytest.approx(4 / 3, rel=0.03)


def test_a_random_window_is_resized_to_the_training_size() -> None:
    ramp = np.zeros((300, 400, 3), dtype=np.uint8)
    ramp[..., 0] = np.linspace(0, 255, 400).round()
    ramp[..., 1] = np.linspace(0, 255, 300).round()[:, None]
    for seed in range(20):
        window = random_window(300, 400, 1.0, 0.35, Random(seed))
        assert window is not None
        cropped = random_resized_crop(ramp, 32, 32, 0.35, Random(seed)).astype(int)
        part = ramp[window].astype(int)
        assert cropped[..., 0].min() == pytest.approx(part[..., 0].min(), abs=5)
        assert cropped[..., 0].max() == pytest.approx(part[..., 0].max(), abs=5)
        assert cropped[..., 1].min() == pytest.approx(part[..., 1].min(), abs=5)
        assert cropped[..., 1].max() == pytest.approx(part[..., 1].max(), abs=5)
        assert cropped[16, 16] == pytest.approx(
            part[part.shape[0] // 2, part.shape[1] // 2], abs=10
        )


@pytest.mark.parametrize("size", [(1000, 10), (10, 1000)])
def test_panoramas_fall_back_to_the_largest_centred_window(size: tuple[int, int]) -> None:
    image = noise(*size)
    centred = [
        seed
        for seed in range(200)
        if random_window(*image.shape[:2], 1.0, 0.08, Random(seed)) is None
    ]
    assert centred
    for seed in centred:
        found = random_resized_crop(image, 8, 8, 0.08, Random(seed))
        assert (found == frame(image, Framing(8, 8, 1.0))).all()


def test_mirroring_swaps_left_and_right() -> None:
    assert (mirror(noise(5, 3)) == noise(5, 3)[:, ::-1]).all()


# ── Padded crop ──────────────────────────────────────────────────────────────────────────────────


def test_a_padded_crop_shifts_by_up_to_an_eighth_with_reflection_padding() -> None:
    pixels = noise(24, 16)
    reflected = np.pad(pixels, ((2, 2), (3, 3), (0, 0)), mode="reflect")
    possible = {
        reflected[y : y + 16, x : x + 24].tobytes(): (y, x)
        for y in range(2 * 2 + 1)
        for x in range(2 * 3 + 1)
    }
    found = {possible[padded_crop(pixels, Random(seed)).tobytes()] for seed in range(2000)}
    assert found == set(possible.values())


@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 8])
def test_tiny_images_get_padded_crops(side: int) -> None:
    pixels = np.zeros((side, side, 3), dtype=np.uint8)
    assert padded_crop(pixels, Random(0)).shape == (side, side, 3)


def test_a_larger_image_is_resized_before_the_padded_crop() -> None:
    augment = Augment(decided_recipe(augmentation="padded-crop", horizontal_flip=False), SIDE, SIDE)
    image = noise(64, 64)
    assert (augment(image, Random(5)) == padded_crop(resize(image, SIDE, SIDE), Random(5))).all()
