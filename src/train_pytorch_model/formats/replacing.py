"""Replace a trained model by a new one: only what is whole and ours, and only when that is
complete.

<trained model>.run/    replacement/    the new model, until it is whole
                        replaced/       the old one, for a moment
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from train_pytorch_model.config.wording import parameter, quoted
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.formats.trained_directory import EVALUATION, MANIFEST
from train_pytorch_model.machine.console import logger

REPLACEMENT = "replacement"
REPLACED = "replaced"
# What evaluating writes into a complete model, see `evaluation.directory`.
EVALUATION_FILES = frozenset(
    {META, INCOMPLETE, "metrics.json", "evaluation.html", "bad_images.csv"}
    | {f"{table}.csv" for table in ("per_class", "confusion_matrix", "calibration", "coverage")}
    | {"mistakes.csv"}
)
CACHE = "__pycache__"  # Python's, in a model's code


def check_replaceable(root: Path, name: str) -> None:
    """Raise `OutputDirectoryError` unless a directory is a whole trained model of this program.

    All its files are as they were written, and there are no others. `name` is its parameter.
    """
    problem = next(_foreign_content(root), "")
    if problem:
        raise OutputDirectoryError(
            f"{parameter(name)} {root} cannot be replaced: {problem}. {quoted('overwrite')}"
            " replaces only models that are whole and as this program wrote them. Name another"
            " directory."
        )


def replace_directory(root: Path, replacement: Path) -> None:
    """Put a complete directory in the place of another, which is removed.

    If this fails, the other one stays. Raises `OSError`.
    """
    root = Path(os.path.realpath(root))
    replaced = replacement.with_name(REPLACED)
    shutil.rmtree(replaced, ignore_errors=True)
    root.rename(replaced)
    try:
        replacement.rename(root)
    except BaseException:
        with suppress(OSError):
            replaced.rename(root)
        raise
    shutil.rmtree(replaced, ignore_errors=True)
    logger.info(f"The earlier model in {root} is replaced.")


def _foreign_content(root: Path) -> Iterator[str]:
    """Yield what is not as this program wrote it."""
    if not (root / META).exists() or (root / INCOMPLETE).exists():
        yield f"it is not a complete model ({META})"
        return
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
