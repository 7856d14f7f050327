"""How long an image takes a network is measured on as many as that needs."""

import numpy as np
import pytest

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.inference.features import FeatureExtractor, Features

FEW, MORE = np.arange(16), np.arange(128)


@pytest.mark.parametrize(("image_s", "measured"), [(0.1, (16, 16)), (0.001, (16, 16, 128))])
def test_fast_networks_are_timed_on_more_images(
    image_s: float, measured: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_s = 0.016  # of reading
    counts: list[int] = []

    def features(_: FeatureExtractor, images: object, indices: np.ndarray) -> Features:  # noqa: ARG001
        counts.append(len(indices))
        return Features(np.zeros((len(indices), 1)), start_s + image_s * len(indices))

    monkeypatch.setattr(FeatureExtractor, "features", features)
    extractor = object.__new__(FeatureExtractor)
    images: ImageDirectory = object.__new__(ImageDirectory)
    seconds = extractor.seconds_per_image(images, FEW, MORE)
    assert tuple(counts) == measured
    assert seconds == pytest.approx(image_s, rel=0.15)
