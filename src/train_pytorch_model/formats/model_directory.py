"""ModelDirectory: an architecture with weights, untrained or trained, also the designer's.

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
                          init_params: {model_name: resnet18, pretrained: false,
                                        zero_init_residual: false}
                        task_type: MultiClassification
                        recipe: {…}          this package's; absent if all entries are defaults
                        weights_licence: …   this package's; of pretrained weights, if it is known
    model               torch.save of the state dict; the keys start with `model.`

A trained one also has

    model_spec.yaml     init_params: {…, num_classes: 3}
                        label_map_file: index_to_label.csv
                        inputs: [{name: image, pre_processor: {module: …, class: ImageNormalizer,
                                  init_params: {mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}}]
    index_to_label.csv  ,label⏎0,circle⏎1,cross⏎…
    _schema.json, _samples.json    of the training data

and if images have any number of categories

    model_spec.yaml     flavor_extras: {module: train_pytorch_model.multi_label, class: ResNet, …}
                        task_type: MultiLabelClassification
                        thresholds: [0.41, 0.5, …]   by class index: the least probability of an
                                                     answer

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
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.writing import write_csv, write_yaml
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.answers import (
    Answers,
    AnyCategories,
    OneCategory,
    answers_by,
)

TYPE = "ModelDirectory"
SPEC = "model_spec.yaml"
MODEL = "model"
LABEL_MAP = "index_to_label.csv"
# Of models of images with any number of categories. The designer's reader imports the module, so it
# refuses them: it would take the most probable category for the answer.
MULTI_LABEL_MODULE = "train_pytorch_model.multi_label"


@dataclass(frozen=True)
class SpecTask:
    """What `model_spec.yaml` says of models that answer in one way."""

    name: str  # `task_type`
    module: str = ""  # `module` of `flavor_extras`; empty for the one of the architecture


TASKS: Mapping[type[Answers], SpecTask] = {
    OneCategory: SpecTask("MultiClassification"),
    AnyCategories: SpecTask("MultiLabelClassification", MULTI_LABEL_MODULE),
}
ONE_CATEGORY = OneCategory()
MAX_LABEL_MAP_BYTES = 16 << 20
MAX_LICENCE = 100  # characters
NORMALIZER_MODULE = "azureml.designer.core.model.model_spec.builtin_model_meta.pre_processor"
NORMALIZER_CLASS = "ImageNormalizer"
# Texts that pandas reads as missing or as booleans.
MISSING = {"", "#N/A", "N/A", "NA", "NaN", "nan", "null", "NULL", "None", "n/a", "<NA>"}
BOOLEANS = {"True", "False", "TRUE", "FALSE", "true", "false"}
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
    # The normalization outside the recipe, as in the designer's trained directories.
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None
    weights_licence: str = ""  # of the pretrained weights in it; empty if it is not known
    # From which probability on each category is answered, if images have any number of them.
    thresholds: tuple[float, ...] | None = None

    @property
    def answers(self) -> Answers:
        """Return how the model answers, once it is trained."""
        return answers_by(self.thresholds)

    @property
    def weights_path(self) -> Path:
        return self.root / MODEL

    @functools.cached_property
    def sha256(self) -> str:
        """Return the sha256 of the specification and the weights' sha256; computed once.

        Raises `OSError`.
        """
        spec = (self.root / SPEC).read_bytes()
        weights = bytes.fromhex(reading.sha256_of(self.weights_path))
        return hashlib.sha256(spec + weights).hexdigest()

    @property
    def is_trained(self) -> bool:
        return bool(self.categories)

    def is_fine_tuned_for(self, categories: Sequence[str]) -> bool:
        """Return whether the weights are trained, but for other categories than these."""
        if self.is_trained:  # the designer's may be pretrained as well
            return set(self.categories) != set(categories)
        return self.is_pretrained

    def error(self, reason: str, hint: str = HINT) -> InvalidModelDirectoryError:
        """Return the error of a directory that cannot be used for this reason."""
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
    """Return how to make a model directory of a weights file or an architecture's name."""
    if os.path.isfile(root):
        options = f"--architecture NAME --weights-file {root}"
    elif not os.path.exists(root) and architectures.is_known(str(root)):
        options = f"--architecture {root}"
    else:
        return HINT
    return f"Make an untrained one: `init-model {options} --output untrained`."


def _open(root: Path, port: str) -> ModelDirectory:
    if not os.path.exists(root):
        raise MalformedFileError(explain_missing(root))
    if not root.is_dir():
        raise MalformedFileError("it is a file, not a directory.")
    meta = reading.read_meta(root, TYPE)
    spec = reading.read_yaml(reading.named_file(root, meta, "model"))
    _check_flavor(spec)
    extras = _mapping(spec, "flavor_extras")
    init_params = _mapping(extras, "init_params")
    family = _family(extras)
    architecture = _architecture(family, init_params)
    option = _option(family, init_params)
    categories = _read_label_map(root, spec)
    _check_num_classes(init_params, categories)
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
    return ModelDirectory(
        root=root,
        port=port,
        architecture=architecture,
        option=option,
        is_pretrained=init_params.get("pretrained") is True,
        recipe=recipe,
        categories=categories,
        mean=normalization.mean,
        std=normalization.std,
        thresholds=_read_thresholds(spec, extras, categories),
        weights_licence=_licence(spec),
    )


def _licence(spec: Mapping[str, Any]) -> str:
    licence = spec.get("weights_licence", "")
    if not isinstance(licence, str) or len(licence) > MAX_LICENCE or not licence.isprintable():
        raise MalformedFileError(f"{SPEC} says weights_licence {licence!r}, expected a short name.")
    return licence


def _check_flavor(spec: Mapping[str, Any]) -> None:
    flavor = spec.get("flavor")
    if not isinstance(flavor, dict):
        flavor = {}
    name = flavor.get("name", spec.get("model_type"))
    method = flavor.get("serialization_method")
    if (name, method) != ("pytorch", "state_dict"):
        raise MalformedFileError(
            f"it is not a PyTorch model: {SPEC} says flavor {name!r},"
            f" serialization_method {method!r}; expected 'pytorch', 'state_dict'."
        )


def _family(extras: Mapping[str, Any]) -> architectures.Family:
    module = extras.get("module")
    class_name = extras.get("class")
    families = (*architectures.FAMILIES, architectures.TIMM_FAMILY)
    for family in families:
        if module in (family.module, MULTI_LABEL_MODULE) and class_name == family.class_name:
            return family
    raise MalformedFileError(
        f"{SPEC} names class {class_name!r} of module {module!r}. Supported are"
        f" {', '.join(family.class_name for family in families)}; nothing else is ever imported."
    )


def _architecture(family: architectures.Family, init_params: Mapping[str, Any]) -> str:
    architecture = str(init_params.get("model_name"))
    if family is architectures.TIMM_FAMILY and architectures.is_of_timm(architecture):
        if importlib.util.find_spec("timm") is None:
            raise MalformedFileError(
                f"{SPEC} names {architecture}, and timm is not installed:"
                f" {architectures.INSTALL_TIMM}."
            )
    elif architecture not in family.architectures:
        known = ", ".join(family.architectures) or "architectures named timm:NAME, in plain letters"
        raise MalformedFileError(
            f"{SPEC} says model_name {init_params.get('model_name')!r}. {family.class_name} has"
            f" {known}."
        )
    return architecture


def _option(family: architectures.Family, init_params: Mapping[str, Any]) -> bool:
    """Return the boolean that is specific to the family; check the names of all others, too."""
    known = ["model_name", "pretrained", "num_classes"]
    booleans = ["pretrained"]
    if family.option:
        known.append(family.option)
        booleans.append(family.option)
    unknown = sorted(str(name) for name in init_params if name not in known)
    if unknown:
        raise MalformedFileError(f"{SPEC} has unknown init_params: {', '.join(unknown)}.")
    for name in booleans:
        if not isinstance(init_params.get(name, False), bool):
            raise MalformedFileError(
                f"{SPEC} says {name} {init_params[name]!r}, expected true or false."
            )
    return bool(family.option and init_params.get(family.option, False))


def _check_num_classes(init_params: Mapping[str, Any], categories: Sequence[str]) -> None:
    declared = init_params.get("num_classes")
    if categories and isinstance(declared, int) and declared != len(categories):
        raise MalformedFileError(
            f"{SPEC} says num_classes {declared}, but {LABEL_MAP} names {len(categories)}."
        )


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


def _read_thresholds(
    spec: Mapping[str, Any], extras: Mapping[str, Any], categories: Sequence[str]
) -> tuple[float, ...] | None:
    """Return the thresholds of a model of any number of categories; None of any other."""
    if extras.get("module") != MULTI_LABEL_MODULE:
        return None
    values: Any = spec.get("thresholds")
    are_fractions = isinstance(values, list) and all(
        isinstance(value, float | int) and 0 <= value <= 1 for value in values
    )
    if not are_fractions or len(values) != len(categories):
        raise MalformedFileError(
            f"{SPEC} should have thresholds, a number from 0 to 1 for each of the"
            f" {len(categories)} categories."
        )
    return tuple(map(float, values))


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
    answers: Answers = ONE_CATEGORY,
    weights_licence: str = "",
) -> dict[str, Any]:
    """Write `model_spec.yaml`, of a trained directory also the label map; return `_meta.yaml`."""
    family = architectures.family_of(architecture)
    task = TASKS[type(answers)]
    entries = recipe.as_mapping()
    params: dict[str, Any] = {"model_name": architecture, "pretrained": is_pretrained}
    if family.option:
        params[family.option] = option
    extras = {
        "module": task.module or family.module,
        "class": family.class_name,
        "is_cuda": False,
        "init_params": params,
    }
    spec: dict[str, Any] = {
        "flavor": {"name": "pytorch", "serialization_method": "state_dict"},
        "model_file": MODEL,
        "time_created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+0000"),
        "flavor_extras": extras,
        "task_type": task.name,
    }
    meta: dict[str, Any] = {"type": TYPE, "extension": {}, "model": SPEC}
    if categories:
        params["num_classes"] = len(categories)
        # A trained model has decided them.
        normalization = {"mean": list(entries["mean"]), "std": list(entries["std"])}
        normalizer = {
            "module": NORMALIZER_MODULE,
            "class": NORMALIZER_CLASS,
            "init_params": normalization,
        }
        spec["label_map_file"] = LABEL_MAP
        spec["inputs"] = [{"name": "image", "pre_processor": normalizer}]
        meta |= {"registerModel": True, "modelOutputPath": "trained_model_outputs"}
        write_csv(root / LABEL_MAP, [["", "label"], *enumerate(categories)])
    spec |= answers.entries()
    if entries:
        spec["recipe"] = entries
    if weights_licence:
        spec["weights_licence"] = weights_licence
    write_yaml(root / SPEC, spec)
    return meta


def renamed_by_type_inference(categories: Sequence[str]) -> list[str]:
    """Return the names that pandas, with which the designer reads the label map, would change."""
    # If all are numbers, they lose leading zeros; `NA` becomes missing.
    renamed = [name for name in categories if name in MISSING]
    with suppress(ValueError):
        list(map(float, categories))  # raises unless all are numbers
        renamed += [name for name in categories if name not in renamed]
    if all(name in BOOLEANS for name in categories):
        renamed += list(categories)
    return renamed
