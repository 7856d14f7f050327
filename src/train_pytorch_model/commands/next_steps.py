"""The commands that a user may want to run next."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PROGRAM = "python -m train_pytorch_model"


def scoring_commands(model: Path) -> Iterator[str]:
    """Yield the lines of a shell that predict new images with a model."""
    yield from activation_commands()
    yield "# FOLDER: new images"
    trained = f"--trained-model {shlex.quote(str(model))}"
    yield f"{PROGRAM} score {trained} --dataset FOLDER --scored-dataset scores"


def activation_commands() -> Iterator[str]:
    """Yield the command that activates this virtual environment; nothing if `python` is already its
    own.
    """
    if sys.prefix == sys.base_prefix:
        return
    python, programs = shutil.which("python"), Path(sys.executable).parent
    if python is None or Path(python).parent != programs:
        root, here = Path(sys.prefix), Path.cwd()
        root = root.relative_to(here) if root.is_relative_to(here) else root
        script = shlex.quote(str(root / programs.name / "activate"))
        yield script if os.name == "nt" else f"source {script}"
