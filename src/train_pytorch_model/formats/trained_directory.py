"""The files that training adds to a trained model directory, and the manifest that describes all of them."""

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
EVALUATION = "evaluation"  # of `fit`, a folder in the trained directory


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
    files = {
        path.relative_to(root).as_posix(): {
            "size": path.stat().st_size,
            "sha256": reading.sha256_of(path),
        }
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != INCOMPLETE
    }
    write_json(root / MANIFEST, {"files": files, "fingerprint": dict(fingerprint)})


def differences(root: Path) -> list[str]:
    """Return the differences of a trained directory from its manifest; empty if every file is
    unchanged.
    """
    try:
        manifest = read_json(root / MANIFEST, _Manifest)
    except MalformedFileError as error:
        return [str(error)]
    found = []
    for name, file in manifest.files.items():
        try:
            if reading.sha256_of(reading.file_inside(root, name)) != file.sha256:
                found.append(f"{name} has changed since it was written")
        except MalformedFileError as error:
            found.append(str(error))
    return found


def published_fingerprint(root: Path) -> dict[str, str] | None:
    """Return the fingerprint of the run that wrote a complete trained directory; None if it has
    none.
    """
    if (root / META).exists() and not (root / INCOMPLETE).exists():
        with suppress(MalformedFileError):
            return read_json(root / MANIFEST, _Manifest).fingerprint
    return None
