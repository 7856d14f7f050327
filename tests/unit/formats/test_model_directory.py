"""Model directories and their files: what is accepted and what is refused."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.classic_models import META, PORT, params, write

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import InvalidModelDirectoryError
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory

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


def test_labels_may_have_any_order_and_line_ending(tmp_path: Path) -> None:
    labels = ",label\r\n1,b\r\n0,001"
    assert open_model_directory(write(tmp_path, labels=labels), PORT).categories == ("001", "b")


# ── Refusing ─────────────────────────────────────────────────────────────────────────────────────


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
    ("given", "options"),
    [
        ("best.pth", "--architecture NAME --weights-file best.pth"),
        ("resnet50", "--architecture resnet50"),
        ("timm:resnet10t", "--architecture timm:resnet10t"),
    ],
)
def test_a_weights_file_and_the_name_of_an_architecture_are_answered_with_what_was_meant(
    given: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best.pth").touch()
    with pytest.raises(InvalidModelDirectoryError) as raised:
        open_model_directory(Path(given), PORT)
    assert f"`init-model {options} --output untrained`" in str(raised.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (no_directory, "there is no such directory."),
        (a_file, "it is a file, not a directory."),
        (unfinished, "it is incomplete: _incomplete is present."),
        (without_meta, "_meta.yaml is missing."),
        (without_spec, "model_spec.yaml is missing."),
        (without_weights, "model is missing."),
        (with_weights_elsewhere, "'model' is a link that points outside the directory."),
        (with_deep_yaml, "model_spec.yaml is not valid YAML: more than 50 nested brackets"),
        (with_an_alias_bomb, "model_spec.yaml is not valid YAML: aliases are not supported"),
    ],
)
def test_incomplete_or_invalid_model_directories_are_refused(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(tmp_path / "model directory")
    with pytest.raises(InvalidModelDirectoryError, match=f"Reason: {re.escape(reason)}"):
        open_model_directory(tmp_path / "model directory", PORT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"type": "ImageDirectory"},
            "_meta.yaml says type 'ImageDirectory', expected 'ModelDirectory'.",
        ),
        (
            {"type": ["ModelDirectory"]},
            "_meta.yaml says type ['ModelDirectory'], expected 'ModelDirectory'.",
        ),
        ({"model": None}, "_meta.yaml does not name its model."),
        ({"model": {"a": 1}}, "_meta.yaml does not name its model."),
        (
            {"model": "../model_spec.yaml"},
            "'../model_spec.yaml' is not a path inside the directory.",
        ),
        ({"model": ""}, "'' is not a path inside the directory."),
        ({"model": "a" * 5000}, "aaa is missing."),
    ],
)
def test_a_meta_without_a_valid_reference_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidModelDirectoryError, match=re.escape(reason)):
        open_model_directory(write(tmp_path, meta=META | change), PORT)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (
            "",
            "index_to_label.csv should be lines of `index,label` under the line `,label`: not"
            " enough values",
        ),
        (
            ",label\n",
            "index_to_label.csv should have the line `,label` and then the indices from 0 on",
        ),
        (
            "index,label\n0,a\n1,b\n",
            "should have the line `,label` and then the indices from 0 on, each once.",
        ),
        (
            ",label\n0,a\n2,b\n",
            "should have the line `,label` and then the indices from 0 on, each once.",
        ),
        (
            ",label\n0,a\n0,b\n",
            "should have the line `,label` and then the indices from 0 on, each once.",
        ),
        (
            ",label\n-1,a\n0,b\n",
            "should have the line `,label` and then the indices from 0 on, each once.",
        ),
        (
            ",label\na,0\nb,1\n",
            "under the line `,label`: invalid literal for int() with base 10: 'a'.",
        ),
        (",label\n0,a\n\n1,b\n", "under the line `,label`: not enough values to unpack"),
        (",label\n0,a,b\n", "under the line `,label`: too many values to unpack"),
        (b",label\n0,\xff\n", "under the line `,label`: 'utf-8' codec can't decode byte 0xff"),
        (",label\n0," + "a" * 200_000, "under the line `,label`: field larger than field limit"),
        (",label\n0,a\n", "model_spec.yaml says num_classes 2, but index_to_label.csv names 1."),
    ],
)
def test_an_invalid_label_map_is_refused(tmp_path: Path, labels: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidModelDirectoryError, match=re.escape(reason)):
        open_model_directory(write(tmp_path, labels=labels), PORT)


def test_classes_of_the_same_name_are_distinguished_by_their_index(tmp_path: Path) -> None:
    # The designer names every gap between its category ids `Others`.
    labels = ",label\n0,Others\n1,a\n2,Others\n"
    root = write(tmp_path, lambda spec: params(spec).update(num_classes=3), labels=labels)
    assert open_model_directory(root, PORT).categories == ("Others (0)", "a", "Others (2)")


def test_an_oversized_label_map_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, labels=",label\n0,a\n1,b\n")
    with (root / "index_to_label.csv").open("ab") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(
        InvalidModelDirectoryError, match=r"index_to_label.csv is larger than 16,777,216 byte"
    ):
        open_model_directory(root, PORT)


def test_nothing_that_a_directory_names_is_imported(tmp_path: Path) -> None:
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
    sys.addaudithook(listen)  # audit hooks cannot be removed, hence the flag
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
    assert not [
        name for name in imported if "hostile" in name or "antigravity" in name or "azureml" in name
    ]


def test_an_error_about_an_open_directory_names_port_and_path(tmp_path: Path) -> None:
    error = open_model_directory(write(tmp_path), PORT).error("it is green.", "Paint it.")
    assert (
        str(error)
        == f'ModelDirectory "Untrained model {tmp_path}" is invalid. Reason: it is green. Paint it.'
    )
    assert error.exit_status == 3
