"""Predictions: from images to probabilities."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from train_pytorch_model.image_classifier.architectures import build, family_of, head_of
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing

CPU = torch.device("cpu")


def test_predictions_do_not_use_tf32_in_convolutions() -> None:
    allowed: list[bool] = []
    network = build("resnet18", False, 2)
    network.register_forward_hook(lambda *_: allowed.append(torch.backends.cudnn.allow_tf32))
    spec = ClassifierSpec(
        "resnet18", False, ("a", "b"), Framing(32, 32, 1.0), (0.5,) * 3, (0.5,) * 3
    )
    ImageClassifier(spec, network, CPU).predict(torch.zeros(1, 32, 32, 3, dtype=torch.uint8))
    assert allowed == [False]
    assert torch.backends.cudnn.allow_tf32


def classifier(network: nn.Module) -> ImageClassifier:
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    spec = ClassifierSpec("resnet18", False, ("a", "b", "c"), Framing(16, 16, 1.0), mean, std)
    return ImageClassifier(spec, copy.deepcopy(network), CPU)


def test_probabilities_are_float64_and_sum_to_one(resnet18: nn.Module) -> None:
    pixels = torch.randint(0, 256, (5, 16, 16, 3), dtype=torch.uint8)
    probabilities = classifier(resnet18).predict(pixels)[0]
    assert probabilities.shape == (5, 3)
    assert probabilities.dtype == np.float64
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-12)


FAMILIES = (
    "resnet18",
    "densenet121",
    "efficientnet_b0",
    "convnext_tiny",
    "regnet_x_400mf",
    "mobilenet_v3_small",
)
OTHERS = ("vit_b_32", "swin_t", "timm:test_resnet", "timm:test_vit", "timm:test_convnext")


@pytest.mark.parametrize("architecture", [*FAMILIES, *OTHERS])
def test_features_are_what_the_last_layer_makes_the_logits_of(architecture: str) -> None:
    torch.manual_seed(1)
    side = family_of(architecture).image_size or (160 if "timm" in architecture else 64)
    network = build(architecture, False, 3)
    spec = ClassifierSpec(
        architecture, False, ("a", "b", "c"), Framing(side, side, 1.0), (0.5,) * 3, (0.5,) * 3
    )
    pixels = torch.randint(0, 256, (2, side, side, 3), dtype=torch.uint8)
    model = ImageClassifier(spec, network, CPU)
    features, probabilities, _ = model.predict_with_features(pixels)
    np.testing.assert_allclose(probabilities, model.predict(pixels)[0], atol=1e-6)
    head = network.get_submodule(head_of(architecture, network))
    with torch.inference_mode():
        expected = head(torch.from_numpy(features)).double().softmax(dim=1).numpy()
    assert features.dtype == np.float32
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert len(head._forward_pre_hooks) == 0


def test_images_of_any_size_and_number_are_classified(resnet18: nn.Module) -> None:
    model = classifier(resnet18)
    images = [Image.new("RGB", (16 + index % 3, 20), (index, 0, 0)) for index in range(70)]
    classified = model.classify([*images[:3], "damaged", *images[3:]])
    together = classified.probabilities
    energies = classified.energies
    reasons = classified.errors
    assert together.shape == (71, 3)
    assert together[70] == pytest.approx(model.classify(images[69:]).probabilities[0], abs=1e-5)
    assert np.isnan(together).all(axis=1).nonzero()[0].tolist() == [3]
    assert np.isnan(energies).nonzero()[0].tolist() == [3]
    assert reasons == [None] * 3 + ["damaged"] + [None] * 67
    assert model.classify([]).probabilities.shape == (0, 3)


def test_brightness_is_measured_of_images_that_are_watched_only(resnet18: nn.Module) -> None:
    model = classifier(resnet18)
    images: list[Image.Image | str] = [Image.new("RGB", (16, 16), "white"), "damaged"]
    plain = model.classify(images)
    watched = model.classify(images, is_watched=True)
    assert np.isnan(plain.brightness).all()
    np.testing.assert_array_equal(watched.brightness, [1, np.nan])
    np.testing.assert_array_equal(watched.energies, plain.energies)
