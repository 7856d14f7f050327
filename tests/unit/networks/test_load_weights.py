"""Networks loaded from weights files and model directories."""

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tests.weights_files import saved, with_prefix
from torch import Tensor, nn

from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.errors import InvalidModelDirectoryError, ParameterError
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory
from train_pytorch_model.image_classifier.architectures import FAMILY_OF, build
from train_pytorch_model.image_classifier.weights import (
    WeightsError,
    read_state_dict,
)
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.networks.load_weights import load_weights
from train_pytorch_model.stories.init_model import initialize

LIMIT = 1 << 30


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def untrained(untrained_resnet18: Path) -> ModelDirectory:
    return open_model_directory(untrained_resnet18, "Untrained model")


def fresh() -> nn.Module:
    return build("resnet18", False, 3)


def test_all_weights_are_loaded(tmp_path: Path, state: dict[str, Tensor]) -> None:
    network = fresh()
    load_weights(network, "fc", saved(tmp_path / "model", with_prefix(state)))
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name]), name


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.module."])
def test_weights_of_a_wrapped_network_are_loaded(
    tmp_path: Path, state: dict[str, Tensor], prefix: str
) -> None:
    inside = {
        "n_averaged": torch.tensor(3),
        **{prefix + name: value for name, value in state.items()},
    }
    network = fresh()
    load_weights(network, "fc", saved(tmp_path / "model", inside))
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("prefix", ["", "backbone.", "module.encoder_q."])
def test_a_backbone_without_a_head_is_loaded(
    tmp_path: Path, state: dict[str, Tensor], prefix: str
) -> None:
    backbone = {prefix + name: value for name, value in state.items() if not name.startswith("fc.")}
    others = (
        {f"{prefix}fc.0.weight": torch.ones(128, 512), "queue": torch.ones(1)} if prefix else {}
    )
    network = fresh()
    head = network.state_dict()["fc.weight"].clone()
    loaded = load_weights(network, "fc", saved(tmp_path / "model", backbone | others))
    found = network.state_dict()
    assert all(
        torch.equal(found[name], state[name]) for name in state if not name.startswith("fc.")
    )
    assert torch.equal(found["fc.weight"], head)
    under = f" under {prefix}" if prefix else ""
    assert loaded == f"{len(backbone)} tensors{under}; it has no last layer"


@pytest.mark.parametrize("prefix", ["", "backbone."])
def test_features_without_a_classifier_of_several_layers_are_loaded(
    tmp_path: Path, prefix: str
) -> None:
    given = build("mobilenet_v3_small", False, 3).state_dict()
    features = {
        prefix + name: value for name, value in given.items() if name.startswith("features.")
    }
    network = build("mobilenet_v3_small", False, 5)
    hidden = network.state_dict()["classifier.0.weight"].clone()
    loaded = load_weights(network, "classifier.3", saved(tmp_path / "model", features))
    found = network.state_dict()
    assert all(
        torch.equal(found[name.removeprefix(prefix)], value) for name, value in features.items()
    )
    assert torch.equal(found["classifier.0.weight"], hidden)
    under = f" under {prefix}" if prefix else ""
    assert loaded == f"{len(features)} tensors{under}; it has none of the classifier's layers"


def test_weights_that_are_not_finite_are_refused(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = saved(
        tmp_path / "weights", {**state, "conv1.weight": state["conv1.weight"] * float("nan")}
    )
    with pytest.raises(
        ParameterError, match=r"weights cannot be used: it holds numbers that are not finite\."
    ):
        initialize(ModelOptions(weights_file=path), 1, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_weights_of_a_deeper_network_do_not_pass_for_its_beginning(tmp_path: Path) -> None:
    deeper = {
        f"module.{name}": value for name, value in build("resnet34", False, 3).state_dict().items()
    }
    with pytest.raises(WeightsError, match=r"layer1\.2\.conv1\.weight is unexpected"):
        load_weights(fresh(), "fc", saved(tmp_path / "model", deeper))


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (3, "122 tensors under module., the last layer of 3 classes among them"),
        (7, "120 tensors under module., but not the last layer of 7 classes"),
    ],
)
def test_it_is_said_what_was_loaded(tmp_path: Path, classes: int, said: str) -> None:
    given = {
        f"module.{name}": value
        for name, value in build("resnet18", False, classes).state_dict().items()
    }
    loaded = load_weights(fresh(), "fc", saved(tmp_path / "model", given))
    assert loaded == said


def test_the_best_weights_in_a_checkpoint_of_this_program_are_loaded(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    others = {name: torch.zeros_like(value) for name, value in state.items()}
    parts = {"best": state, "momentum": others, "network": others}
    tensors = {f"{part}.{name}": parts[part][name].clone() for part in parts for name in state}
    safetensors.torch.save_file(
        {**tensors, "statistics.0": torch.ones(9)}, tmp_path / "000001.safetensors"
    )
    network = fresh()
    assert " under best., " in load_weights(network, "fc", tmp_path / "000001.safetensors")
    assert torch.equal(network.state_dict()["conv1.weight"], state["conv1.weight"])


def test_a_trained_head_keeps_the_rows_of_known_categories_by_name(
    tmp_path: Path, untrained: ModelDirectory, state: dict[str, Tensor]
) -> None:
    saved(tmp_path / "model", with_prefix(state))
    trained = replace(untrained, root=tmp_path, categories=("a", "b", "c"))
    found = build_model(trained, ("c", "x", "a", "b")).state_dict()
    assert torch.equal(found["fc.weight"][[2, 3, 0]], state["fc.weight"])
    assert torch.equal(found["fc.bias"][[2, 3, 0]], state["fc.bias"])
    assert not found["fc.weight"][1].any()
    assert torch.equal(found["conv1.weight"], state["conv1.weight"])


def as_torchvision_wrote_it(architecture: str, network: nn.Module) -> dict[str, Tensor]:
    """The state dict with the older names of torchvision's published weights files."""
    names: dict[str, tuple[str, Callable[[re.Match[str]], str]]] = {
        "densenet121": (
            r"(denselayer\d+\.(?:norm|conv))([12]\.)",
            lambda found: f"{found[1]}.{found[2]}",
        ),
        "vit_b_32": (r"mlp\.([03])\.", lambda found: f"mlp.linear_{1 + int(found[1]) // 3}."),
        "resnet18": ("^$", lambda _: ""),
    }
    pattern, old = names[architecture]
    state = network.state_dict().items()
    return {
        re.sub(pattern, old, name): value
        for name, value in state
        if "num_batches_tracked" not in name
    }


@pytest.mark.parametrize("architecture", ["resnet18", "densenet121", "vit_b_32"])
def test_published_torchvision_weights_are_loaded(tmp_path: Path, architecture: str) -> None:
    given = build(architecture, False, 3)
    file = saved(tmp_path / "weights.pth", as_torchvision_wrote_it(architecture, given))
    network = build(architecture, False, 3)
    load_weights(network, FAMILY_OF[architecture].head, file)
    expected = given.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())


def test_a_head_for_other_categories_is_replaced_and_the_other_weights_are_kept(
    untrained: ModelDirectory,
) -> None:
    before = read_state_dict(untrained.weights_path, LIMIT)
    assert before["fc.weight"].shape == (1000, 512)
    torch.manual_seed(5)
    network = build_model(untrained, tuple("abcd"))
    found = network.state_dict()
    assert found["fc.weight"].shape == (4, 512)
    assert found["fc.bias"].shape == (4,)
    assert all(
        torch.equal(found[name], before[name]) for name in before if not name.startswith("fc.")
    )
    torch.manual_seed(5)
    again = build_model(untrained, tuple("abcd"))
    assert torch.equal(again.state_dict()["fc.weight"], found["fc.weight"])


@pytest.mark.parametrize("num_classes", [3, 5, 1000])
def test_a_trained_model_whose_head_does_not_match_its_categories_is_refused(
    num_classes: int, tmp_path: Path, untrained: ModelDirectory
) -> None:
    saved(tmp_path / "model", with_prefix(build("resnet18", False, 5).state_dict()))
    trained = replace(untrained, root=tmp_path, categories=("a", "b", "c"))
    with pytest.raises(InvalidModelDirectoryError) as raised:
        build_model(trained, [str(index) for index in range(num_classes)])
    assert "model: its head has 5 classes; index_to_label.csv names 3." in str(raised.value)


def test_a_head_for_the_same_number_of_categories_is_kept(untrained: ModelDirectory) -> None:
    before = read_state_dict(untrained.weights_path, LIMIT)
    assert torch.equal(
        build_model(untrained, [str(index) for index in range(1000)]).state_dict()["fc.weight"],
        before["fc.weight"],
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda state: state.pop("layer1.0.conv1.weight"),
            "layer1.0.conv1.weight is missing.",
            id="a missing weight",
        ),
        pytest.param(
            lambda state: state.update(extra=torch.ones(1)),
            "extra is unexpected.",
            id="an extra weight",
        ),
        pytest.param(
            lambda state: state.update({"conv1.weight": torch.ones(64, 3, 3, 3)}),
            "conv1.weight has shape (64, 3, 3, 3), expected (64, 3, 7, 7).",
            id="another shape",
        ),
        pytest.param(
            lambda state: state.update({"bn1.bias": torch.ones(64, dtype=torch.int64)}),
            "bn1.bias has dtype torch.int64, expected torch.float32.",
            id="another dtype",
        ),
        pytest.param(
            lambda state: state.update({"fc.weight": torch.ones(3, 100)}),
            "fc.weight has shape (3, 100), expected (3, 512).",
            id="a head of another width",
        ),
        pytest.param(
            lambda state: state.update({"fc.weight": torch.ones(7, 512)}),
            "fc.weight has shape (7, 512), expected (3, 512).",
            id="a head whose weight and bias disagree",
        ),
        pytest.param(
            lambda state: state.update({"fc.weight": torch.ones(512)}),
            "fc.weight has shape (512,), expected (3, 512).",
            id="a head of one dimension",
        ),
        pytest.param(lambda state: state.pop("fc.bias"), "fc.bias is missing.", id="half a head"),
        pytest.param(
            lambda state: [state.pop(name) for name in list(state) if name.startswith("layer1.0.")],
            "layer1.0.conv1.weight is missing; layer1.0.bn1.weight is missing; layer1.0.bn1.bias"
            " is missing; layer1.0.bn1.running_mean is missing; layer1.0.bn1.running_var is"
            " missing, and 5 more.",
            id="many",
        ),
    ],
)
def test_mismatched_weights_are_listed_and_nothing_is_loaded(
    tmp_path: Path,
    resnet18: nn.Module,
    state: dict[str, Tensor],
    change: Callable[[dict[str, Tensor]], object],
    message: str,
) -> None:
    change(state)
    path = saved(tmp_path / "model", with_prefix(state))
    before = copy.deepcopy(resnet18.state_dict())
    with pytest.raises(WeightsError) as raised:
        load_weights(resnet18, "fc", path)
    assert str(raised.value) == message
    assert all(torch.equal(value, before[name]) for name, value in resnet18.state_dict().items())


def test_the_error_names_the_directory_and_the_architecture(
    tmp_path: Path, untrained: ModelDirectory
) -> None:
    saved(tmp_path / "model", {"model.x": torch.ones(1)})
    with pytest.raises(InvalidModelDirectoryError) as raised:
        build_model(replace(untrained, root=tmp_path), tuple("abc"))
    message = str(raised.value)
    assert message.startswith(
        f'ModelDirectory "Untrained model {tmp_path}" is invalid. Reason: model: conv1.weight is'
        f" missing; "
    )
    assert message.endswith("more. The weights of a resnet18 are expected.")


def test_half_precision_weights_are_loaded_in_single_precision(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    halves = {name: v.half() if v.is_floating_point() else v for name, v in state.items()}
    network = fresh()
    load_weights(network, "fc", saved(tmp_path / "model", halves))
    assert {value.dtype for value in network.parameters()} == {torch.float32}
