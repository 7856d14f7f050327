"""The files that training adds to a trained model directory, and the manifest of all its files.

manifest.json         {"files": {"model": {"size": 1, "sha256": "…"}, …}, "fingerprint": {…}}
                      the fingerprint of the run, see `fingerprint`
metrics.jsonl         one JSON object per epoch
report.html           the report
model_card.md         the model card
azureml_model.yaml    registers the model in Azure ML
evaluation/           of `fit`, the evaluation of the test images
corrections.csv       of `fit`, the decisions by which its images were corrected, if any
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from train_pytorch_model.formats import reading
from train_pytorch_model.formats.reading import INCOMPLETE, META, MalformedFileError, read_json
from train_pytorch_model.formats.writing import write_json

MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
REPORT = "report.html"
MODEL_CARD = "model_card.md"
AZUREML_MODEL = "azureml_model.yaml"
EVALUATION = "evaluation"


class _File(msgspec.Struct):
    sha256: str


class _Manifest(msgspec.Struct):
    files: dict[str, _File]
    fingerprint: dict[str, str] | None = None


def write_metrics(path: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Write `metrics.jsonl`, one line per epoch. Raises `OSError`."""
    path.write_text("".join(json.dumps(record) + "\n" for record in history), encoding="ascii")


def write_manifest(root: Path, fingerprint: Mapping[str, str]) -> None:
    """Describe all files of a trained directory, just before `_meta.yaml` completes it."""
    files = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != INCOMPLETE:
            entry = {"size": path.stat().st_size, "sha256": reading.sha256_of(path)}
            files[path.relative_to(root).as_posix()] = entry
    write_json(root / MANIFEST, {"files": files, "fingerprint": dict(fingerprint)})


def differences(root: Path) -> list[str]:
    """Return how a trained directory differs from its manifest; empty if no file has changed."""
    try:
        manifest = read_json(root / MANIFEST, _Manifest)
    except MalformedFileError as error:
        return [str(error)]
    problems = []
    for name, file in manifest.files.items():
        try:
            if reading.sha256_of(reading.file_inside(root, name)) != file.sha256:
                problems.append(f"{name} has changed since it was written")
        except MalformedFileError as error:
            problems.append(str(error))
    return problems


def files_in_manifest(root: Path) -> frozenset[str]:
    """Return the names of the files that training wrote; none if the manifest cannot be read."""
    with suppress(MalformedFileError):
        return frozenset(read_json(root / MANIFEST, _Manifest).files)
    return frozenset()


def published_fingerprint(root: Path) -> dict[str, str] | None:
    """Return the fingerprint of the run that wrote a complete trained directory, if it has one."""
    if (root / META).exists() and not (root / INCOMPLETE).exists():
        with suppress(MalformedFileError):
            return read_json(root / MANIFEST, _Manifest).fingerprint
    return None
