"""`manifest.json` of a trained directory: sizes and sha256 of its files, and the run it came from."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from train_pytorch_model.formats.reading import (
    INCOMPLETE,
    META,
    MalformedFileError,
    file_inside,
    read_json,
    sha256_of,
)
from train_pytorch_model.formats.writing import write_json

MANIFEST = "manifest.json"


class _File(msgspec.Struct):
    sha256: str


class _Manifest(msgspec.Struct):
    files: dict[str, _File]
    fingerprint: dict[str, str] | None = None


def write_manifest(root: Path, fingerprint: Mapping[str, str]) -> None:
    """Describe all files of the directory, just before `_meta.yaml` completes it."""
    files = {
        path.relative_to(root).as_posix(): {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != INCOMPLETE
    }
    write_json(root / MANIFEST, {"files": files, "fingerprint": dict(fingerprint)})


def differences(root: Path) -> list[str]:
    """Return the differences of a trained directory from its manifest; empty if every file is unchanged."""
    try:
        manifest = read_json(root / MANIFEST, _Manifest)
    except MalformedFileError as error:
        return [str(error)]
    found = []
    for name, file in manifest.files.items():
        try:
            if sha256_of(file_inside(root, name)) != file.sha256:
                found.append(f"{name} has changed since it was written")
        except MalformedFileError as error:
            found.append(str(error))
    return found


def published_fingerprint(root: Path) -> dict[str, str] | None:
    """Return the fingerprint of the run that wrote a complete trained directory; None if it has none."""
    if not (root / META).exists() or (root / INCOMPLETE).exists():
        return None
    try:
        return read_json(root / MANIFEST, _Manifest).fingerprint
    except MalformedFileError:
        return None
