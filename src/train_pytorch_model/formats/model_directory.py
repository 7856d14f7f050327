"""ModelDirectory: an architecture with weights, untrained or trained, of this package or the
designer.

    _meta.yaml          type: ModelDirectory
                        extension: {}
                        model: model_spec.yaml
                        (trained: registerModel: true, modelOutputPath: trained_model_outputs)
    model_spec.yaml     flavor: {name: pytorch, serialization_method: state_dict}
                        model_file: model
                        time_created: 2026-11-20T22:41:45.839149+0000
                        flavor_extras:
                          module: azureml.designer.modules.dl.pytorch.….classification.resnet
                          class: ResNet
                          is_cuda: false
                          init_params: {model_name: resnet18, pretrained: false, zero_init_residual: false}
                        task_type: MultiClassification
                        recipe: {…}          this package's; absent if all entries are defaults
    model               torch.save of the state dict; the keys start with `model.`

A trained one also has

    model_spec.yaml     init_params: {…, num_classes: 3}
                        label_map_file: index_to_label.csv
                        inputs: [{name: image, pre_processor: {module: …, class: ImageNormalizer,
                                  init_params: {mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}}]
    index_to_label.csv  ,label⏎0,circle⏎1,cross⏎…
    _schema.json, _samples.json    of the training data

`time_created` keeps `+0000` without a colon: the designer's reader accepts no other form.
"""

import csv
import functools
import hashlib
import importlib.util
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import InvalidModelDirectoryError, ParameterError
from train_pytorch_model.formats import reading
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.writing import write_csv, write_yaml
from train_pytorch_model.image_classifier import architectures

TYPE = "ModelDirectory"
SPEC = "model_spec.yaml"
MODEL = "model"
LABEL_MAP = "index_to_label.csv"
MAX_LABEL_MAP_BYTES = 16 << 20
NORMALIZER_MODULE = "azureml.designer.core.model.model_spec.builtin_model_meta.pre_processor"
NORMALIZER_CLASS = "ImageNormalizer"
HINT = (
    "Connect a PyTorch model such as ResNet or DenseNet, as init-model or the designer writes it."
)


@dataclass(frozen=True)
class ModelDirectory:
    """A checked model directory; its weights are not read yet."""

    root: Path
    port: str
    architecture: str
    option: bool  # the boolean of `init_params` that is specific to the architecture family
    is_pretrained: bool
    recipe: Recipe
    categories: tuple[str, ...]  # class index → name; empty when untrained
    mean: tuple[float, float, float] | None
    """The normalization given outside the recipe, as in the designer's trained directories."""
    std: tuple[float, float, float] | None

    @property
    def weights_path(self) -> Path:
        return self.root / MODEL

    @functools.cached_property
    def sha256(self) -> str:
        """Return the sha256 of the specification and the weights' sha256; computed once.

        Raises `OSError`.
        """
        spec = (self.root / SPEC).read_bytes()
        return hashlib.sha256(
            spec + bytes.fromhex(reading.sha256_of(self.weights_path))
        ).hexdigest()

    @property
    def is_trained(self) -> bool:
        return bool(self.categories)

    def is_fine_tuned_for(self, categories: Sequence[str]) -> bool:
        """Whether training for these categories is fine-tuning: the weights are trained, but for
        others.
        """
        if self.is_trained:  # the designer's may be pretrained as well
            return set(self.categories) != set(categories)
        return self.is_pretrained

    def error(self, reason: str, hint: str = HINT) -> InvalidModelDirectoryError:
        return InvalidModelDirectoryError(f"{self.port} {self.root}", reason, hint)


def open_model_directory(root: Path, port: str, hint: str = "") -> ModelDirectory:
    """Open and check a directory, but for its weights.

    Raises `InvalidModelDirectoryError` with the hint.
    """
    try:
        return _open(root, port)
    except MalformedFileError as error:
        raise InvalidModelDirectoryError(
            f"{port} {root}", str(error), hint or _what_to_do(root)
        ) from error


def _what_to_do(root: Path) -> str:
    """How to make a model directory of what is not one: a weights file or an architecture's name."""
    if os.path.isfile(root):
        options = f"--architecture NAME --weights-file {root}"
    elif not os.path.exists(root) and architectures.is_known(str(root)):
        options = f"--architecture {root}"
    else:
        return HINT
    return f"Make an untrained one: `init-model {options} --output untrained`."


def _open(root: Path, port: str) -> ModelDirectory:
    if not os.path.exists(root):
        raise MalformedFileError(reading.explain_missing(root))
    if not root.is_dir():
        raise MalformedFileError("it is a file, not a directory.")
    meta = reading.read_meta(root, TYPE)
    spec = reading.read_yaml(reading.named_file(root, meta, "model"))
    flavor = spec.get("flavor")
    flavor = flavor if isinstance(flavor, dict) else {}
    found = flavor.get("name", spec.get("model_type")), flavor.get("serialization_method")
    if found != ("pytorch", "state_dict"):
        raise MalformedFileError(
            f"it is not a PyTorch model: {SPEC} says flavor {found[0]!r},"
            f" serialization_method {found[1]!r}; expected 'pytorch', 'state_dict'."
        )
    extras = _mapping(spec, "flavor_extras")
    init_params = _mapping(extras, "init_params")
    architecture, option = _architecture(extras, init_params)
    categories = _read_label_map(root, spec)
    declared_classes = init_params.get("num_classes")
    if categories and isinstance(declared_classes, int) and declared_classes != len(categories):
        raise MalformedFileError(
            f"{SPEC} says num_classes {declared_classes}, but {LABEL_MAP} names {len(categories)}."
        )
    normalization = _read_normalization(spec)
    if spec.get("model_file") != MODEL:
        raise MalformedFileError(
            f"{SPEC} says model_file {spec.get('model_file')!r}, expected {MODEL!r}."
        )
    reading.file_inside(root, MODEL)
    try:
        recipe = Recipe.from_mapping(_mapping(spec, "recipe", {}))
    except ParameterError as error:
        raise MalformedFileError(f"{SPEC}: {error}") from error
    mean, std, is_pretrained = (
        normalization.mean,
        normalization.std,
        init_params.get("pretrained") is True,
    )
    return ModelDirectory(
        root, port, architecture, option, is_pretrained, recipe, categories, mean, std
    )


def _architecture(extras: Mapping[str, Any], init_params: Mapping[str, Any]) -> tuple[str, bool]:
    named = extras.get("module"), extras.get("class")
    families = (*architectures.FAMILIES, architectures.TIMM_FAMILY)
    family = next((f for f in families if (f.module, f.class_name) == named), None)
    if family is None:
        raise MalformedFileError(
            f"{SPEC} names class {named[1]!r} of module {named[0]!r}. Supported are"
            f" {', '.join(f.class_name for f in families)}; nothing else is ever imported."
        )
    architecture = str(init_params.get("model_name"))
    if family is architectures.TIMM_FAMILY and architectures.is_of_timm(architecture):
        if importlib.util.find_spec("timm") is None:
            raise MalformedFileError(
                f"{SPEC} names {architecture}, and timm is not installed:"
                f" {architectures.INSTALL_TIMM}."
            )
    elif architecture not in family.architectures:
        raise MalformedFileError(
            f"{SPEC} says model_name {init_params.get('model_name')!r}. {family.class_name} has"
            f" {', '.join(family.architectures)}."
        )
    options = [family.option] if family.option else []
    known = {"model_name", "pretrained", "num_classes", *options}
    if unknown := sorted(str(name) for name in init_params if name not in known):
        raise MalformedFileError(f"{SPEC} has unknown init_params: {', '.join(unknown)}.")
    for name in ("pretrained", *options):
        if not isinstance(init_params.get(name, False), bool):
            raise MalformedFileError(
                f"{SPEC} says {name} {init_params[name]!r}, expected true or false."
            )
    return architecture, any(init_params.get(name, False) for name in options)


def _read_label_map(root: Path, spec: Mapping[str, Any]) -> tuple[str, ...]:
    name = spec.get("label_map_file")
    if name is None:
        return ()
    if not isinstance(name, str):
        raise MalformedFileError(f"{SPEC} says label_map_file {name!r}, expected a file name.")
    data = reading.read_bounded(reading.file_inside(root, name), MAX_LABEL_MAP_BYTES)
    try:
        header, *rows = csv.reader(io.StringIO(data.decode()))
        labels = {int(index): label for index, label in rows}
    except (ValueError, csv.Error) as error:
        raise MalformedFileError(
            f"{name} should be lines of `index,label` under the line `,label`: {error}."
        ) from error
    if header != ["", "label"] or sorted(labels) != list(range(len(rows))) or not labels:
        raise MalformedFileError(
            f"{name} should have the line `,label` and then the indices from 0 on, each once."
        )
    # The designer fills each gap between category ids with a category named `Others`.
    counts = Counter(labels.values())
    numbered = sorted(labels.items())
    return tuple(f"{label} ({index})" if counts[label] > 1 else label for index, label in numbered)


def _read_normalization(spec: Mapping[str, Any]) -> Recipe:
    """Return a recipe with the mean and std of the designer's pre-processor, if there is one."""
    inputs = spec.get("inputs")
    if not inputs:
        return Recipe()
    try:
        pre_processor = inputs[0]["pre_processor"]
        if pre_processor["class"] != NORMALIZER_CLASS:
            raise MalformedFileError(
                f"{SPEC} names pre_processor {pre_processor['class']!r}, expected"
                f" {NORMALIZER_CLASS!r}."
            )
        params = pre_processor["init_params"]
        return Recipe.from_mapping({"mean": params["mean"], "std": params["std"]})
    except (KeyError, IndexError, TypeError, ParameterError) as error:
        raise MalformedFileError(
            f"{SPEC} has no usable pre_processor in inputs: {error}."
        ) from error


def _mapping(
    parent: Mapping[str, Any], key: str, default: dict[str, Any] | None = None
) -> dict[str, Any]:
    value = parent.get(key, default)
    if not isinstance(value, dict):
        raise MalformedFileError(f"{SPEC} should have a mapping {key!r} and has {value!r}.")
    return value


def write_spec(
    root: Path,
    *,
    architecture: str,
    option: bool,
    is_pretrained: bool,
    recipe: Recipe,
    categories: Sequence[str] = (),
) -> dict[str, Any]:
    """Write `model_spec.yaml`, and a trained directory's files; return the content of `_meta.yaml`."""
    family = architectures.family_of(architecture)
    entries = recipe.as_mapping()
    params: dict[str, Any] = {"model_name": architecture, "pretrained": is_pretrained}
    if family.option:
        params[family.option] = option
    extras = {
        "module": family.module,
        "class": family.class_name,
        "is_cuda": False,
        "init_params": params,
    }
    spec: dict[str, Any] = {
        "flavor": {"name": "pytorch", "serialization_method": "state_dict"},
        "model_file": MODEL,
        "time_created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+0000"),
        "flavor_extras": extras,
        "task_type": "MultiClassification",
    }
    meta: dict[str, Any] = {"type": TYPE, "extension": {}, "model": SPEC}
    if categories:
        params["num_classes"] = len(categories)
        normalization = {
            name: list(entries[name]) for name in ("mean", "std")
        }  # which it must have now
        normalizer = {
            "module": NORMALIZER_MODULE,
            "class": NORMALIZER_CLASS,
            "init_params": normalization,
        }
        spec["label_map_file"] = LABEL_MAP
        spec["inputs"] = [{"name": "image", "pre_processor": normalizer}]
        meta |= {"registerModel": True, "modelOutputPath": "trained_model_outputs"}
        write_csv(root / LABEL_MAP, [["", "label"], *enumerate(categories)])
    if entries:
        spec["recipe"] = entries
    write_yaml(root / SPEC, spec)
    return meta


def renamed_by_type_inference(categories: Sequence[str]) -> list[str]:
    """Return the names that pandas, with which the designer reads the label map, would change."""
    # If all are numbers, they lose leading zeros; `NA` becomes missing.
    missing = {"", "#N/A", "N/A", "NA", "NaN", "nan", "null", "NULL", "None", "n/a", "<NA>"}
    suspects = [name for name in categories if name in missing]
    with suppress(ValueError):
        list(map(float, categories))  # raises unless all are numbers
        suspects += [name for name in categories if name not in suspects]
    if all(name in ("True", "False", "TRUE", "FALSE", "true", "false") for name in categories):
        suspects += list(categories)
    return suspects
