"""The network in a model directory's spec: what is accepted and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.classic_models import PRE_PROCESSOR, open_changed, params
from tests.model_directories import DENSENET, RESNET

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import InvalidModelDirectoryError


def test_the_option_is_the_one_of_the_family(tmp_path: Path) -> None:
    def densenet(spec: dict[str, Any]) -> None:
        spec["flavor_extras"] |= {"module": DENSENET, "class": "DenseNet"}
        spec["flavor_extras"]["init_params"] = {
            "model_name": "densenet201",
            "pretrained": True,
            "memory_efficient": True,
        }

    directory = open_changed(tmp_path, densenet)
    assert (directory.architecture, directory.option, directory.is_pretrained) == (
        "densenet201",
        True,
        True,
    )


def test_init_params_may_name_only_the_architecture(tmp_path: Path) -> None:
    directory = open_changed(
        tmp_path, lambda spec: spec["flavor_extras"].update(init_params={"model_name": "resnet18"})
    )
    assert (directory.option, directory.is_pretrained) == (False, False)


def test_the_recipe_is_read(tmp_path: Path) -> None:
    directory = open_changed(tmp_path, lambda spec: spec.update(recipe={"image_size": [48, 64]}))
    assert directory.recipe == Recipe(image_size=(48, 64))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            lambda spec: spec.pop("flavor"),
            "it is not a PyTorch model: model_spec.yaml says flavor None, serialization_method"
            " None;"
            " expected 'pytorch', 'state_dict'.",
            id="no flavor",
        ),
        pytest.param(
            lambda spec: spec.update(flavor="pytorch"),
            "it is not a PyTorch model: model_spec.yaml says flavor None",
            id="a flavor that is not a mapping",
        ),
        pytest.param(
            lambda spec: spec.update(flavor={}, model_type="pickle"),
            "it is not a PyTorch model: model_spec.yaml says flavor 'pickle', serialization_method"
            " None",
            id="the designer's other models",
        ),
        pytest.param(
            lambda spec: spec["flavor"].update(serialization_method="pickle"),
            "it is not a PyTorch model: model_spec.yaml says flavor 'pytorch', serialization_method"
            " 'pickle'",
            id="a pickled module",
        ),
        pytest.param(
            lambda spec: spec.pop("flavor_extras"),
            "model_spec.yaml should have a mapping 'flavor_extras' and has None.",
            id="no flavor_extras",
        ),
        pytest.param(
            lambda spec: spec["flavor_extras"].update(init_params=[1]),
            "model_spec.yaml should have a mapping 'init_params' and has [1].",
            id="init_params that are not a mapping",
        ),
        pytest.param(
            lambda spec: spec["flavor_extras"].update({"module": "os", "class": "system"}),
            "model_spec.yaml names class 'system' of module 'os'. Supported are ResNet, DenseNet",
            id="an unsupported module",
        ),
        pytest.param(
            lambda spec: spec["flavor_extras"].update({"class": "DenseNet"}),
            f"model_spec.yaml names class 'DenseNet' of module '{RESNET}'. Supported are",
            id="a class of another module",
        ),
        pytest.param(
            lambda spec: spec["flavor_extras"].update({"module": [RESNET]}),
            f"model_spec.yaml names class 'ResNet' of module ['{RESNET}']. Supported are",
            id="a module that is not a string",
        ),
        pytest.param(
            lambda spec: params(spec).update(model_name="densenet121"),
            "model_spec.yaml says model_name 'densenet121'. ResNet has resnet18, resnet34,"
            " resnet50,",
            id="an architecture of another family",
        ),
        pytest.param(
            lambda spec: params(spec).update(model_name={"a": 1}),
            "model_spec.yaml says model_name {'a': 1}. ResNet has",
            id="an architecture that is not a string",
        ),
        pytest.param(
            lambda spec: (
                spec["flavor_extras"].update({"module": "timm", "class": "timm"}),
                params(spec).update(model_name="timm:hf-hub:someone/model"),
            ),
            "model_spec.yaml says model_name 'timm:hf-hub:someone/model'. timm has architectures"
            " named timm:NAME, in plain letters.",
            id="a place to download from",
        ),
        pytest.param(
            lambda spec: params(spec).update(width=2, groups=3),
            "model_spec.yaml has unknown init_params: groups, width.",
            id="unknown init_params",
        ),
        pytest.param(
            lambda spec: params(spec).update(memory_efficient=False),
            "model_spec.yaml has unknown init_params: memory_efficient.",
            id="the option of another family",
        ),
        pytest.param(
            lambda spec: params(spec).update(pretrained="yes"),
            "model_spec.yaml says pretrained 'yes', expected true or false.",
            id="pretrained that is not a boolean",
        ),
        pytest.param(
            lambda spec: params(spec).update(zero_init_residual=1),
            "model_spec.yaml says zero_init_residual 1, expected true or false.",
            id="an option that is not a boolean",
        ),
        pytest.param(
            lambda spec: spec.update(model_file="../model"),
            "model_spec.yaml says model_file '../model', expected 'model'.",
            id="another model file",
        ),
        pytest.param(
            lambda spec: spec.update(recipe={"image_size": 3, "crop_fraction": 2.0}),
            "model_spec.yaml: Recipe: image_size should be from 8 to 4096; it is 3.\n"
            "Recipe: crop_fraction should be above 0 and at most 1; it is 2.0.",
            id="a recipe out of range",
        ),
        pytest.param(
            lambda spec: spec.update(recipe={"mixup": 1}),
            "model_spec.yaml: Recipe: unknown entries:\n  mixup",
            id="a recipe with unknown entries",
        ),
        pytest.param(
            lambda spec: spec.update(recipe=None),
            "model_spec.yaml should have a mapping 'recipe' and has None.",
            id="a recipe that is not a mapping",
        ),
        pytest.param(
            lambda spec: spec.update(label_map_file=["a.csv"]),
            "model_spec.yaml says label_map_file ['a.csv'], expected a file name.",
            id="a label map that is not a file name",
        ),
        pytest.param(
            lambda spec: spec.update(label_map_file="labels.csv"),
            "labels.csv is missing.",
            id="no label map",
        ),
        pytest.param(
            lambda spec: spec.update(label_map_file="/etc/passwd"),
            "'/etc/passwd' is not a path inside the directory.",
            id="a label map elsewhere",
        ),
        pytest.param(
            lambda spec: spec.update(inputs=[{"name": "image"}]),
            "model_spec.yaml has no usable pre_processor in inputs: 'pre_processor'.",
            id="inputs without pre_processor",
        ),
        pytest.param(
            lambda spec: spec.update(inputs={"name": "image"}),
            "model_spec.yaml has no usable pre_processor in inputs: 0.",
            id="inputs that are not a list",
        ),
        pytest.param(
            lambda spec: spec.update(
                inputs=[{"pre_processor": {"class": "Pickled", "init_params": {}}}]
            ),
            "model_spec.yaml names pre_processor 'Pickled', expected 'ImageNormalizer'.",
            id="another pre_processor",
        ),
        pytest.param(
            lambda spec: spec.update(
                inputs=[
                    {
                        "pre_processor": PRE_PROCESSOR
                        | {"init_params": {"mean": [127.5] * 3, "std": [1] * 3}}
                    }
                ]
            ),
            "model_spec.yaml has no usable pre_processor in inputs: Recipe: mean should be three"
            " values",
            id="a mean in other units",
        ),
    ],
)
def test_the_spec_of_an_unsupported_network_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    with pytest.raises(InvalidModelDirectoryError) as raised:
        open_changed(tmp_path, change)
    message = str(raised.value)
    assert message.startswith(
        f'ModelDirectory "Untrained model {tmp_path}" is invalid. Reason: {reason}'
    )
    assert message.endswith(
        "Connect a PyTorch model such as ResNet or DenseNet, as init-model or the designer writes"
        " it."
    )
