"""A model directory in the classic form, for tests to modify."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.model_directories import RESNET
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory
from train_pytorch_model.formats.writing import write_yaml

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
    """Write a classic directory with a modified spec; a trained one if `labels` are given."""
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
