"""Networks of timm with a fixed size, built for another one: weights, answers, files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from timm.layers import resample_abs_pos_embed

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.export.conversion import check_against_pytorch, to_onnx
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.image_classifier.classifier import ImageClassifier, Normalize
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.image_classifier.weights import write_state_dict
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.networks.heat_maps import heat_map

NETWORK = "timm:test_vit"
OWN = (160, 160)
OTHER = (64, 96)
HALF = (0.5, 0.5, 0.5)


def init_model(output: Path, weights: dict[str, torch.Tensor], **options: Any) -> Path:
    file = output.with_suffix(".safetensors")
    safetensors.torch.save_file(weights, file)
    InitModel(output=output, weights_file=file, **options).run()
    return output


def test_weights_of_another_size_are_resampled_by_timm(tmp_path: Path) -> None:
    given: Any = timm.create_model("test_vit")
    model = init_model(
        tmp_path / "m", given.state_dict(), architecture=NETWORK, recipe=Recipe(image_size=OTHER)
    )
    directory = open_model_directory(model, "Untrained model")
    network: Any = build_model(directory, [str(index) for index in range(1000)])
    expected = resample_abs_pos_embed(
        given.pos_embed, [4, 6], num_prefix_tokens=given.num_prefix_tokens
    )
    assert directory.recipe.image_size == OTHER
    torch.testing.assert_close(network.pos_embed, expected, rtol=0, atol=1e-6)
    assert torch.equal(network.blocks[0].mlp.fc1.weight, given.blocks[0].mlp.fc1.weight)
    assert torch.equal(network.head.weight, given.head.weight)


def test_weights_without_a_head_are_resampled_too(tmp_path: Path) -> None:
    given: Any = timm.create_model("test_vit", num_classes=0)
    recipe = Recipe(image_size=96)
    model = init_model(tmp_path / "m", given.state_dict(), architecture=NETWORK, recipe=recipe)
    network: Any = build_model(open_model_directory(model, "Untrained model"), ["a", "b"])
    assert torch.equal(network.norm.weight, given.norm.weight)
    assert network(torch.zeros(1, 3, 96, 96)).shape == (1, 2)


def test_weights_that_timm_cannot_resample_say_so(tmp_path: Path) -> None:
    given: Any = timm.create_model("visformer_tiny")
    with pytest.raises(ParameterError, match=r"pos_embed.*--image-size should be the size that"):
        init_model(
            tmp_path / "m",
            given.state_dict(),
            architecture="timm:visformer_tiny",
            recipe=Recipe(image_size=192),
        )


def test_a_trained_network_of_another_size_is_served_explained_and_exported(tmp_path: Path) -> None:
    torch.manual_seed(3)
    network = build(NETWORK, False, 2, OTHER).eval()
    write_state_dict(tmp_path / "model", network.state_dict())
    spec = ClassifierSpec(NETWORK, False, ("a", "b"), Framing(*OTHER, 1.0), HALF, HALF)
    served = ImageClassifier.load(spec, tmp_path / "model", torch.device("cpu"))

    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, *OTHER, 3), np.uint8))
    program = torch.nn.Sequential(Normalize(HALF, HALF), network, torch.nn.Softmax(dim=1)).eval()
    with torch.inference_mode():
        expected = program(pixels.permute(0, 3, 1, 2))
    probabilities, _ = served.predict(pixels)
    np.testing.assert_allclose(probabilities, expected.double(), atol=1e-6)

    assert heat_map(network, torch.randn(1, 3, *OTHER)) is not None
    exported = to_onnx(program, spec)
    assert check_against_pytorch(exported, program, spec, tmp_path / "model.onnx") < 1e-4


def test_the_own_size_draws_the_same_weights_as_none() -> None:
    torch.manual_seed(5)
    by_default = build(NETWORK, False, 2).state_dict()
    torch.manual_seed(5)
    named = build(NETWORK, False, 2, OWN).state_dict()
    assert all(torch.equal(value, named[name]) for name, value in by_default.items())


def test_other_networks_take_any_size_as_before() -> None:
    network = build("timm:test_resnet", False, 2, (64, 64)).eval()
    assert network(torch.zeros(1, 3, 96, 96)).shape == (1, 2)
