"""Model directories: what is accepted and what is refused."""

import copy
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.model_directories import DENSENET, RESNET

from train_pytorch_model.errors import InvalidModelDirectoryError
from train_pytorch_model.formats.files import write_yaml
from train_pytorch_model.formats.model_directory import (
    ModelDirectory,
    open_model_directory,
)
from train_pytorch_model.recipe import Recipe

PORT = "Untrained model"
META: dict[str, Any] = {"type": "ModelDirectory", "extension": {}, "model": "model_spec.yaml"}
CLASSIC: dict[str, Any] = {
    "flavor": {"name": "pytorch", "serialization_method": "state_dict"},
    "model_file": "model",
    "time_created": "2026-11-20T22:41:45.839149+0000",
    "flavor_extras": {
        "module": RESNET,
        "class": "ResNet",
        "is_cuda": False,
        "init_params": {"model_name": "resnet18", "pretrained": False, "zero_init_residual": False},
    },
    "task_type": "MultiClassification",
}
PRE_PROCESSOR: dict[str, Any] = {
    "module": "azureml.designer.core.model.model_spec.builtin_model_meta.pre_processor",
    "class": "ImageNormalizer",
    "init_params": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]},
}


def write(
    root: Path,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    labels: str | bytes | None = None,
    meta: dict[str, Any] = META,
) -> Path:
    """A classic directory with a change to its spec; with labels, a trained one."""
    spec = copy.deepcopy(CLASSIC)
    root.mkdir(exist_ok=True)
    if labels is not None:
        spec["label_map_file"] = "index_to_label.csv"
        spec["inputs"] = [{"name": "image", "pre_processor": copy.deepcopy(PRE_PROCESSOR)}]
        spec["flavor_extras"]["init_params"]["num_classes"] = 2
        data = labels if isinstance(labels, bytes) else labels.encode()
        (root / "index_to_label.csv").write_bytes(data)
    change(spec)
    write_yaml(root / "_meta.yaml", meta)
    write_yaml(root / "model_spec.yaml", spec)
    (root / "model").touch()
    return root


def open_changed(root: Path, change: Callable[[dict[str, Any]], object]) -> ModelDirectory:
    return open_model_directory(write(root, change), PORT)


def params(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["flavor_extras"]["init_params"]
    return found


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────


def test_a_classic_untrained_directory_is_read(tmp_path: Path) -> None:
    directory = open_model_directory(write(tmp_path), PORT)
    assert directory == ModelDirectory(
        root=tmp_path,
        port=PORT,
        architecture="resnet18",
        option=False,
        is_pretrained=False,
        recipe=Recipe(),
        categories=(),
        mean=None,
        std=None,
    )
    assert not directory.is_trained
    assert directory.weights_path == tmp_path / "model"


def test_a_classic_trained_directory_is_read(tmp_path: Path) -> None:
    directory = open_model_directory(write(tmp_path, labels=',label\n0,"a, b"\n1,größer\n'), PORT)
    assert directory.categories == ("a, b", "größer")
    assert directory.is_trained
    assert (directory.mean, directory.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))


def test_the_family_tells_what_its_option_is(tmp_path: Path) -> None:
    def densenet(spec: dict[str, Any]) -> None:
        spec["flavor_extras"] |= {"module": DENSENET, "class": "DenseNet"}
        spec["flavor_extras"]["init_params"] = {
            "model_name": "densenet201",
            "pretrained": True,
            "memory_efficient": True,
        }

    directory = open_changed(tmp_path, densenet)
    assert (directory.architecture, directory.option, directory.is_pretrained) == ("densenet201", True, True)


def test_init_params_may_name_the_architecture_only(tmp_path: Path) -> None:
    directory = open_changed(
        tmp_path, lambda spec: spec["flavor_extras"].update(init_params={"model_name": "resnet18"})
    )
    assert (directory.option, directory.is_pretrained) == (False, False)


def test_the_recipe_is_read(tmp_path: Path) -> None:
    directory = open_changed(tmp_path, lambda spec: spec.update(recipe={"image_size": [48, 64]}))
    assert directory.recipe == Recipe(image_size=(48, 64))


def test_labels_may_come_in_any_order_and_end_in_any_way(tmp_path: Path) -> None:
    labels = ",label\r\n1,b\r\n0,001"
    assert open_model_directory(write(tmp_path, labels=labels), PORT).categories == ("001", "b")


# ── Refusing ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            lambda spec: spec.pop("flavor"),
            "it is not a PyTorch model: model_spec.yaml says flavor None, serialization_method None;"
            " expected 'pytorch', 'state_dict'.",
            id="no flavor",
        ),
        pytest.param(
            lambda spec: spec.update(flavor="pytorch"),
            "it is not a PyTorch model: model_spec.yaml says flavor None",
            id="a flavor that is no mapping",
        ),
        pytest.param(
            lambda spec: spec.update(flavor={}, model_type="pickle"),
            "it is not a PyTorch model: model_spec.yaml says flavor 'pickle', serialization_method None",
            id="the designer's other models",
        ),
        pytest.param(
            lambda spec: spec["flavor"].update(serialization_method="pickle"),
            "it is not a PyTorch model: model_spec.yaml says flavor 'pytorch', serialization_method 'pickle'",
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
            id="init_params that are no mapping",
        ),
        pytest.param(
            lambda spec: spec["flavor_extras"].update({"module": "os", "class": "system"}),
            "model_spec.yaml names class 'system' of module 'os'. Known are ResNet, DenseNet",
            id="a module of its own",
        ),
        pytest.param(
            lambda spec: spec["flavor_extras"].update({"class": "DenseNet"}),
            f"model_spec.yaml names class 'DenseNet' of module '{RESNET}'. Known are",
            id="a class of another module",
        ),
        pytest.param(
            lambda spec: spec["flavor_extras"].update({"module": [RESNET]}),
            f"model_spec.yaml names class 'ResNet' of module ['{RESNET}']. Known are",
            id="a module that is no text",
        ),
        pytest.param(
            lambda spec: params(spec).update(model_name="densenet121"),
            "model_spec.yaml says model_name 'densenet121'. ResNet has resnet18, resnet34, resnet50,",
            id="an architecture of another family",
        ),
        pytest.param(
            lambda spec: params(spec).update(model_name={"a": 1}),
            "model_spec.yaml says model_name {'a': 1}. ResNet has",
            id="an architecture that is no text",
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
            id="pretrained that is no boolean",
        ),
        pytest.param(
            lambda spec: params(spec).update(zero_init_residual=1),
            "model_spec.yaml says zero_init_residual 1, expected true or false.",
            id="an option that is no boolean",
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
            id="a recipe that is no mapping",
        ),
        pytest.param(
            lambda spec: spec.update(label_map_file=["a.csv"]),
            "model_spec.yaml says label_map_file ['a.csv'], expected a file name.",
            id="a label map that is no name",
        ),
        pytest.param(
            lambda spec: spec.update(label_map_file="labels.csv"), "labels.csv is missing.", id="no label map"
        ),
        pytest.param(
            lambda spec: spec.update(label_map_file="/etc/passwd"),
            "'/etc/passwd' leads out of the directory.",
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
            id="inputs that are no list",
        ),
        pytest.param(
            lambda spec: spec.update(inputs=[{"pre_processor": {"class": "Pickled", "init_params": {}}}]),
            "model_spec.yaml names pre_processor 'Pickled', expected 'ImageNormalizer'.",
            id="another pre_processor",
        ),
        pytest.param(
            lambda spec: spec.update(
                inputs=[
                    {"pre_processor": PRE_PROCESSOR | {"init_params": {"mean": [127.5] * 3, "std": [1] * 3}}}
                ]
            ),
            "model_spec.yaml has no usable pre_processor in inputs: Recipe: mean should be three values",
            id="a mean in other units",
        ),
    ],
)
def test_a_spec_that_is_no_network_of_ours_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    with pytest.raises(InvalidModelDirectoryError) as raised:
        open_changed(tmp_path, change)
    message = str(raised.value)
    assert message.startswith(f'ModelDirectory "Untrained model {tmp_path}" is invalid. Reason: {reason}')
    assert message.endswith(
        "Connect a PyTorch model such as ResNet or DenseNet, as init-model or the designer writes it."
    )


def no_directory(root: Path) -> None:
    assert not root.exists()


def a_file(root: Path) -> None:
    root.touch()


def unfinished(root: Path) -> None:
    (write(root) / "_incomplete").touch()


def without_meta(root: Path) -> None:
    (write(root) / "_meta.yaml").unlink()


def without_spec(root: Path) -> None:
    (write(root) / "model_spec.yaml").unlink()


def without_weights(root: Path) -> None:
    (write(root) / "model").unlink()


def with_weights_elsewhere(root: Path) -> None:
    without_weights(root)
    (root / "model").symlink_to("/etc/hostname")


def with_deep_yaml(root: Path) -> None:
    (write(root) / "model_spec.yaml").write_text("{a: " * 20_000)


def with_an_alias_bomb(root: Path) -> None:
    (write(root) / "model_spec.yaml").write_text("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (no_directory, "there is no such directory."),
        (a_file, "it is a file, not a directory."),
        (unfinished, "it is incomplete: _incomplete is there."),
        (without_meta, "_meta.yaml is missing."),
        (without_spec, "model_spec.yaml is missing."),
        (without_weights, "model is missing."),
        (with_weights_elsewhere, "'model' is a link that leads out of the directory."),
        (with_deep_yaml, "model_spec.yaml has more than 50 brackets in each other."),
        (with_an_alias_bomb, "model_spec.yaml is not valid YAML: aliases are not read"),
    ],
)
def test_what_is_no_whole_model_directory_is_refused(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(tmp_path / "model directory")
    with pytest.raises(InvalidModelDirectoryError, match=f"Reason: {re.escape(reason)}"):
        open_model_directory(tmp_path / "model directory", PORT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "ImageDirectory"}, "_meta.yaml says type 'ImageDirectory', expected 'ModelDirectory'."),
        ({"type": ["ModelDirectory"]}, "_meta.yaml says type ['ModelDirectory'], expected 'ModelDirectory'."),
        ({"model": None}, "_meta.yaml does not name its model."),
        ({"model": {"a": 1}}, "_meta.yaml does not name its model."),
        ({"model": "../model_spec.yaml"}, "'../model_spec.yaml' leads out of the directory."),
        ({"model": ""}, "'' leads out of the directory."),
        ({"model": "a" * 5000}, "aaa is missing."),
    ],
)
def test_a_meta_that_does_not_lead_to_a_spec_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidModelDirectoryError, match=re.escape(reason)):
        open_model_directory(write(tmp_path, meta=META | change), PORT)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (
            "",
            "index_to_label.csv should be lines of `index,label` under the line `,label`: not enough values",
        ),
        (",label\n", "index_to_label.csv should have the line `,label` and then the indices from 0 on"),
        (
            "index,label\n0,a\n1,b\n",
            "should have the line `,label` and then the indices from 0 on, each once.",
        ),
        (",label\n0,a\n2,b\n", "should have the line `,label` and then the indices from 0 on, each once."),
        (",label\n0,a\n0,b\n", "should have the line `,label` and then the indices from 0 on, each once."),
        (",label\n-1,a\n0,b\n", "should have the line `,label` and then the indices from 0 on, each once."),
        (",label\na,0\nb,1\n", "under the line `,label`: invalid literal for int() with base 10: 'a'."),
        (",label\n0,a\n\n1,b\n", "under the line `,label`: not enough values to unpack"),
        (",label\n0,a,b\n", "under the line `,label`: too many values to unpack"),
        (b",label\n0,\xff\n", "under the line `,label`: 'utf-8' codec can't decode byte 0xff"),
        (",label\n0," + "a" * 200_000, "under the line `,label`: field larger than field limit"),
        (",label\n0,a\n", "model_spec.yaml says num_classes 2, and index_to_label.csv names 1."),
    ],
)
def test_a_label_map_that_is_none_is_refused(tmp_path: Path, labels: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidModelDirectoryError, match=re.escape(reason)):
        open_model_directory(write(tmp_path, labels=labels), PORT)


def test_classes_of_one_name_are_told_apart_by_their_index(tmp_path: Path) -> None:
    # The designer names every gap between its category ids `Others`.
    labels = ",label\n0,Others\n1,a\n2,Others\n"
    root = write(tmp_path, lambda spec: params(spec).update(num_classes=3), labels=labels)
    assert open_model_directory(root, PORT).categories == ("Others (0)", "a", "Others (2)")


def test_a_label_map_without_end_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, labels=",label\n0,a\n1,b\n")
    with (root / "index_to_label.csv").open("ab") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(
        InvalidModelDirectoryError, match=r"index_to_label.csv is larger than 16,777,216 byte"
    ):
        open_model_directory(root, PORT)


def test_nothing_that_a_directory_names_is_ever_imported(tmp_path: Path) -> None:
    imported: list[str] = []
    is_listening = True

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if is_listening and event == "import":
            imported.append(str(arguments[0]))

    def hostile(spec: dict[str, Any]) -> None:
        spec["flavor_extras"] |= {"module": "marker_of_a_hostile_directory", "class": "antigravity"}

    def hostile_normalizer(spec: dict[str, Any]) -> None:
        spec["inputs"][0]["pre_processor"]["module"] = "marker_of_a_hostile_directory"

    hostile_model = write(tmp_path / "model", hostile)
    trained = write(tmp_path / "trained", hostile_normalizer, labels=",label\n0,a\n1,b\n")
    sys.addaudithook(listen)  # cannot be taken away again, hence the flag
    try:
        with pytest.raises(InvalidModelDirectoryError, match=r"'marker_of_a_hostile_directory'"):
            open_model_directory(hostile_model, PORT)
        assert open_model_directory(trained, PORT).mean == (0.5, 0.4, 0.3)
        import this_module_does_not_exist  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        pass
    finally:
        is_listening = False
    assert imported[-1] == "this_module_does_not_exist"
    assert not [name for name in imported if "hostile" in name or "antigravity" in name or "azureml" in name]


def test_an_error_about_an_open_directory_names_port_and_place(tmp_path: Path) -> None:
    error = open_model_directory(write(tmp_path), PORT).error("it is green.", "Paint it.")
    assert (
        str(error)
        == f'ModelDirectory "Untrained model {tmp_path}" is invalid. Reason: it is green. Paint it.'
    )
    assert error.exit_status == 3
