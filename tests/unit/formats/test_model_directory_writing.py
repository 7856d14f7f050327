"""Writing model directories: the classic form, byte for byte."""

import re
from pathlib import Path

import pytest
import yaml
from tests.model_directories import DENSENET, HALF, RESNET

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.formats.model_directory import (
    ModelDirectory,
    open_model_directory,
    renamed_by_type_inference,
    write_spec,
)
from train_pytorch_model.formats.writing import write_yaml

PORT = "Untrained model"


def time_fixed(text: str) -> str:
    return re.sub(
        r"time_created: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+0000\n", "time_created: …\n", text
    )


def test_an_untrained_spec_has_the_classic_form_byte_for_byte(tmp_path: Path) -> None:
    meta = write_spec(
        tmp_path, architecture="resnet18", option=False, is_pretrained=False, recipe=Recipe()
    )
    assert list(meta.items()) == [
        ("type", "ModelDirectory"),
        ("extension", {}),
        ("model", "model_spec.yaml"),
    ]
    assert time_fixed((tmp_path / "model_spec.yaml").read_text()) == (
        "flavor:\n"
        "  name: pytorch\n"
        "  serialization_method: state_dict\n"
        "model_file: model\n"
        "time_created: …\n"
        "flavor_extras:\n"
        f"  module: {RESNET}\n"
        "  class: ResNet\n"
        "  is_cuda: false\n"
        "  init_params:\n"
        "    model_name: resnet18\n"
        "    pretrained: false\n"
        "    zero_init_residual: false\n"
        "task_type: MultiClassification\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model_spec.yaml"]


def test_a_trained_spec_is_the_classic_form_plus_the_recipe_byte_for_byte(tmp_path: Path) -> None:
    recipe = Recipe(image_size=(32, 48), mean=HALF, std=HALF)
    meta = write_spec(
        tmp_path,
        architecture="densenet121",
        option=True,
        is_pretrained=False,
        recipe=recipe,
        categories=["a", "b,c", "größe"],
    )
    assert list(meta.items()) == [
        ("type", "ModelDirectory"),
        ("extension", {}),
        ("model", "model_spec.yaml"),
        ("registerModel", True),
        ("modelOutputPath", "trained_model_outputs"),
    ]
    thirds = "      - 0.5\n" * 3
    ours = "  - 0.5\n" * 3
    assert time_fixed((tmp_path / "model_spec.yaml").read_text()) == (
        "flavor:\n"
        "  name: pytorch\n"
        "  serialization_method: state_dict\n"
        "model_file: model\n"
        "time_created: …\n"
        "flavor_extras:\n"
        f"  module: {DENSENET}\n"
        "  class: DenseNet\n"
        "  is_cuda: false\n"
        "  init_params:\n"
        "    model_name: densenet121\n"
        "    pretrained: false\n"
        "    memory_efficient: true\n"
        "    num_classes: 3\n"
        "task_type: MultiClassification\n"
        "label_map_file: index_to_label.csv\n"
        "inputs:\n"
        "- name: image\n"
        "  pre_processor:\n"
        "    module: azureml.designer.core.model.model_spec.builtin_model_meta.pre_processor\n"
        "    class: ImageNormalizer\n"
        "    init_params:\n"
        f"      mean:\n{thirds}"
        f"      std:\n{thirds}"
        "recipe:\n"
        "  image_size:\n"
        "  - 32\n"
        "  - 48\n"
        f"  mean:\n{ours}"
        f"  std:\n{ours}"
    )
    assert (
        tmp_path / "index_to_label.csv"
    ).read_bytes() == ',label\n0,a\n1,"b,c"\n2,größe\n'.encode()


def test_a_family_without_an_option_is_written_and_read_without_one(tmp_path: Path) -> None:
    meta = write_spec(
        tmp_path, architecture="vit_b_16", option=False, is_pretrained=True, recipe=Recipe()
    )
    write_yaml(tmp_path / "_meta.yaml", meta)
    (tmp_path / "model").touch()
    extras = yaml.safe_load((tmp_path / "model_spec.yaml").read_text())["flavor_extras"]
    assert extras == {
        "module": "train_pytorch_model",
        "class": "VisionTransformer",
        "is_cuda": False,
        "init_params": {"model_name": "vit_b_16", "pretrained": True},
    }
    directory = open_model_directory(tmp_path, PORT)
    assert (directory.architecture, directory.option, directory.is_pretrained) == (
        "vit_b_16",
        False,
        True,
    )


def test_the_creation_time_is_a_string_with_a_utc_offset_without_a_colon(tmp_path: Path) -> None:
    write_spec(
        tmp_path, architecture="resnet18", option=False, is_pretrained=False, recipe=Recipe()
    )
    time = yaml.safe_load((tmp_path / "model_spec.yaml").read_text())["time_created"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+0000", time)


@pytest.mark.parametrize(
    ("architecture", "option"), [("resnext50_32x4d", True), ("densenet161", False)]
)
def test_a_written_spec_is_read_back(tmp_path: Path, architecture: str, option: bool) -> None:
    recipe = Recipe(image_size=64, augmentation="none", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    categories = ("001", "a, b", 'with "quotes"', "two\nlines", "größe", "")
    meta = write_spec(
        tmp_path,
        architecture=architecture,
        option=option,
        is_pretrained=True,
        recipe=recipe,
        categories=categories,
    )
    write_yaml(tmp_path / "_meta.yaml", meta)
    (tmp_path / "model").touch()
    assert open_model_directory(tmp_path, PORT) == ModelDirectory(
        root=tmp_path,
        port=PORT,
        architecture=architecture,
        option=option,
        is_pretrained=True,
        recipe=recipe,
        categories=categories,
        mean=(0.1, 0.2, 0.3),
        std=(0.4, 0.5, 0.6),
    )


@pytest.mark.parametrize(
    ("names", "renamed"),
    [
        (["cat", "dog"], []),
        (["cat", "1"], []),
        (["1", "001"], ["1", "001"]),
        (["1.5", "-2e3"], ["1.5", "-2e3"]),
        (["True", "False"], ["True", "False"]),
        (["True", "cat"], []),
        (["NA", "cat"], ["NA"]),
        (["", "cat", "None"], ["", "None"]),
        (["nan", "1"], ["nan", "1"]),
    ],
)
def test_names_that_the_classic_reader_would_change_are_found(
    names: list[str], renamed: list[str]
) -> None:
    assert renamed_by_type_inference(names) == renamed
