"""Replace a result by a new one: only what is whole and ours, and only when the new one is
complete.

scores/                 the old result
scores.replacement/     the new one, until it is whole
scores.replaced/        the old one, for a moment

<trained model>.run/    replacement/, replaced/: the same of a model that is trained

A trained model is ours if its files are those of its manifest. Another result is if nothing in it
is newer than its `_meta.yaml`, which was written last.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from train_pytorch_model.config.wording import parameter, quoted
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.reading import INCOMPLETE, META, MalformedFileError, read_meta
from train_pytorch_model.formats.trained_directory import EVALUATION, MANIFEST
from train_pytorch_model.machine.console import logger

REPLACEMENT = "replacement"
REPLACED = "replaced"
# What evaluating writes into a complete model, see `evaluation.directory`.
EVALUATION_FILES = frozenset(
    {META, INCOMPLETE, "metrics.json", "evaluation.html", "bad_images.csv"}
    | {f"{table}.csv" for table in ("per_class", "confusion_matrix", "calibration", "coverage")}
    | {"mistakes.csv", "twins.csv", "compared.json", "curves.csv", "co_occurrence.csv"}
)
CACHE = "__pycache__"  # Python's, in a model's code
OF_SYSTEMS = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})  # put there by file managers

# Kinds of results: but for the first, the types in their `_meta.yaml`.
TRAINED = "trained"
UNTRAINED = "ModelDirectory"
EVALUATED = "EvaluationDirectory"
SCORED = "DataFrameDirectory"
IMAGES = "ImageDirectory"
TRANSFORMATION = "TransformationDirectory"
WATCHED = "WatchDirectory"
NOUNS = {
    TRAINED: "model",
    UNTRAINED: "untrained model",
    EVALUATED: "evaluation",
    SCORED: "scored dataset",
    IMAGES: "image directory",
    TRANSFORMATION: "transformation",
    WATCHED: "result of watch",
}


def check_replaceable(root: Path, name: str, kind: str = TRAINED) -> None:
    """Raise `OutputDirectoryError` unless a directory is a whole result of a kind in `NOUNS`.

    All its files are as they were written, and there are no others. `name` is its parameter.
    """
    problem = next(_foreign_content(root, kind), "")
    if problem:
        raise OutputDirectoryError(
            f"{parameter(name)} {root} cannot be replaced: {problem}. {quoted('overwrite')}"
            f" replaces only {_article(NOUNS[kind])} that is whole and as this program wrote it."
            " Name another directory."
        )


def is_replaceable(root: Path, kind: str) -> bool:
    """Return whether a directory is a whole result of a kind, as this program wrote it."""
    return next(_foreign_content(root, kind), "") == ""


def replacement_of(root: Path) -> Path:
    """Return where a result is written that is to replace another."""
    real = Path(os.path.realpath(root))
    return real.with_name(f"{real.name}.{REPLACEMENT}")


def clear_replacement(root: Path, kind: str) -> None:
    """Remove what a replacing left that was killed, and put the old result back if need be."""
    replacement = replacement_of(root)
    replaced = _replaced_of(replacement)
    if not os.path.lexists(root) and is_replaceable(replaced, kind):
        replaced.rename(root)
    for left in (replacement, replaced):
        if is_replaceable(left, kind):
            shutil.rmtree(left, ignore_errors=True)


def replace_directory(root: Path, replacement: Path, kind: str = TRAINED) -> None:
    """Put a complete directory in the place of another, which is removed.

    If this fails, the other one stays. Raises `OSError`.
    """
    root = Path(os.path.realpath(root))
    replaced = _replaced_of(replacement)
    shutil.rmtree(replaced, ignore_errors=True)
    root.rename(replaced)
    try:
        replacement.rename(root)
    except BaseException:
        with suppress(OSError):
            replaced.rename(root)
        raise
    shutil.rmtree(replaced, ignore_errors=True)
    logger.info(f"The earlier {NOUNS[kind]} in {root} is replaced.")


def _replaced_of(replacement: Path) -> Path:
    return replacement.with_name(replacement.name.removesuffix(REPLACEMENT) + REPLACED)


def _foreign_content(root: Path, kind: str) -> Iterator[str]:
    """Yield what is not as this program wrote it."""
    if not (root / META).exists() or (root / INCOMPLETE).exists():
        yield f"it is not a complete {NOUNS[kind]} ({META})"
    elif (root / MANIFEST).exists() != (kind == TRAINED):
        yield "it is not a trained model" if kind == TRAINED else "it is a trained model"
    elif kind == TRAINED:
        yield from _foreign_in_model(root)
    else:
        yield from _foreign_in_result(root, kind)


def _foreign_in_model(root: Path) -> Iterator[str]:
    """Yield what is not as the manifest of a trained model says."""
    ours = {MANIFEST, META, *trained_directory.files_in_manifest(root)}
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        in_evaluation = len(inside.parts) == 2 and inside.parts[0] == EVALUATION
        is_ours = inside.as_posix() in ours or CACHE in inside.parts
        if path.is_dir() and not path.is_symlink():
            continue
        if not is_ours and not (in_evaluation and inside.name in EVALUATION_FILES):
            yield f"{inside.as_posix()} is not a file of the model"
    yield from trained_directory.differences(root)


def _foreign_in_result(root: Path, kind: str) -> Iterator[str]:
    """Yield what was added or changed since a result was completed, or that it is another kind."""
    try:
        read_meta(root, kind)
        completed_ns = _changed_ns((root / META).lstat())
        folders = [root]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif entry.name in OF_SYSTEMS:
                        continue
                    elif _changed_ns(entry.stat(follow_symlinks=False)) > completed_ns:
                        yield f"{os.path.relpath(entry.path, root)} is newer than its {META}"
    except (OSError, MalformedFileError) as error:
        yield str(error).rstrip(".")


def _changed_ns(state: os.stat_result) -> int:
    """Return when a file was changed, or moved here; on Windows, when it was made, if later."""
    return max(state.st_ctime_ns, state.st_mtime_ns)


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
