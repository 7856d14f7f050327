"""timm's networks: what is taken from timm, and which names are refused."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from tests.weights_files import fake_hub
from torch import nn

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import FailedToDownloadFilesError, ParameterError, UserError
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.image_classifier.architectures import build, head_of, is_of_timm
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.networks.dry_runs import WithoutMemory, min_local_batch
from train_pytorch_model.training.cuda_graph_step import can_be_captured

SMALL = [
    "test_resnet",
    "test_byobnet",
    "test_efficientnet",
    "test_convnext",
    "test_vit",
    "test_nfnet",
]
THOUSAND = [str(index) for index in range(1000)]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", SMALL)
def test_the_logits_of_a_timm_network_equal_timms(name: str, tmp_path: Path) -> None:
    torch.manual_seed(7)
    given: Any = timm.create_model(name)
    safetensors.torch.save_file(given.state_dict(), tmp_path / "weights.safetensors")
    output, weights = tmp_path / "untrained", tmp_path / "weights.safetensors"
    InitModel(output=output, architecture=f"timm:{name}", weights_file=weights).run()
    directory = open_model_directory(output, "Untrained model")
    images = torch.randn(2, 3, 160, 160)
    with torch.inference_mode():
        logits = build_model(directory, THOUSAND).eval()(images)
        expected = given.eval()(images)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    assert directory.is_pretrained
    config = given.pretrained_cfg
    assert (directory.recipe.image_size, directory.recipe.mean) == (160, tuple(config["mean"]))
    assert directory.recipe.std == tuple(config["std"])


@pytest.mark.parametrize("name", SMALL)
def test_the_head_and_the_shapes_of_a_timm_network_are_known(name: str) -> None:
    with WithoutMemory():
        network = build(f"timm:{name}", False, 7)
    head = network.get_submodule(head_of(f"timm:{name}", network))
    assert isinstance(head, nn.Linear)
    assert head.out_features == 7
    assert min_local_batch(network, 160, 160) == 1
    assert not can_be_captured(network)


def test_the_recipe_of_the_user_comes_first(tmp_path: Path) -> None:
    recipe = Recipe(image_size=96, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    InitModel(output=tmp_path / "m", architecture="timm:test_resnet.r160_in1k", recipe=recipe).run()
    directory = open_model_directory(tmp_path / "m", "Untrained model")
    assert directory.recipe == recipe
    assert directory.architecture == "timm:test_resnet.r160_in1k"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"architecture": "timm:test_resnut"},
            r"does not know it\. Did you mean timm:test_resnet\?",
        ),
        ({"architecture": "timm:test_resnet.moon"}, r"Invalid pretrained tag \(moon\)"),
        ({"architecture": "timm:dla34"}, "does not end in one linear layer"),
        (
            {"architecture": "timm:deit_tiny_distilled_patch16_224"},
            "does not end in one linear layer",
        ),
        ({"architecture": "timm:hf_hub:a/b"}, "is not known"),
        ({"architecture": "timm:local-dir:/tmp"}, "is not known"),
        (
            {"architecture": "timm:test_vit", "recipe": Recipe(training_size=96)},
            r"predicts, which is 160 px\. Give --image-size 96, or no --training-size",
        ),
        (
            {"architecture": "timm:coatnet_nano_rw_224", "recipe": Recipe(image_size=200)},
            r"--image-size 200 does not fit .* The nearest sides that do are 192 and 224 px",
        ),
        (
            {"architecture": "timm:test_vit", "weights": "DEFAULT"},
            r"timm:NAME\.TAG`, with --pretrained",
        ),
    ],
)
def test_what_timm_cannot_do_here_is_refused(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=message):
        InitModel(output=tmp_path / "m", **options).run()


@pytest.mark.parametrize(
    "name", ["timm:hf_hub:a/b", "timm:/etc/passwd", "timm:a.b.c", "timm:", "xtimm:a"]
)
def test_only_names_of_timms_registry_are_looked_up(name: str) -> None:
    assert not is_of_timm(name)


def test_pretrained_weights_come_from_the_hubs_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: Any = timm.create_model("test_resnet")
    safetensors.torch.save_file(given.state_dict(), tmp_path / "weights.safetensors")
    fake_hub(
        monkeypatch,
        tmp_path / "hub",
        "timm/test_resnet.r160_in1k",
        tmp_path / "weights.safetensors",
    )
    InitModel(output=tmp_path / "m", architecture="timm:test_resnet", pretrained=True).run()
    found = build_model(
        open_model_directory(tmp_path / "m", "Untrained model"), THOUSAND
    ).state_dict()
    assert all(torch.equal(value, found[name]) for name, value in given.state_dict().items())


def test_weights_that_the_hub_cannot_send_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_hub(monkeypatch, tmp_path / "hub")
    with pytest.raises(FailedToDownloadFilesError, match="name it with --weights-file") as raised:
        InitModel(output=tmp_path / "m", architecture="timm:test_resnet", pretrained=True).run()
    assert isinstance(raised.value, UserError)
    assert "timm/test_resnet.r160_in1k/model.safetensors" in str(raised.value)
