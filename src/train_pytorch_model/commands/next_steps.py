"""The commands that a user may want to run next."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from train_pytorch_model.machine.command_lines import COMMAND


def scoring_commands(model: Path) -> Iterator[str]:
    """Yield the lines of a shell that predict new images with a model."""
    yield from activation_commands()
    yield "# FOLDER: new images"
    trained = f"--trained-model {shlex.quote(str(model))}"
    yield f"{COMMAND} score {trained} --dataset FOLDER --scored-dataset scores"


def review_command(model: Path, folder: Path) -> str:
    """Return the line of a shell that writes the page on which labels are corrected."""
    dataset = f"--dataset {shlex.quote(str(folder))}"
    return f"{COMMAND} review {shlex.quote(str(model))} {dataset}"


def activation_commands() -> Iterator[str]:
    """Yield the command that activates this virtual environment, unless `python` is its python."""
    if sys.prefix == sys.base_prefix:
        return
    python = shutil.which("python")
    programs = Path(sys.executable).parent
    if python is not None and Path(python).parent == programs:
        return
    root = Path(sys.prefix)
    if root.is_relative_to(Path.cwd()):
        root = root.relative_to(Path.cwd())
    script = shlex.quote(str(root / programs.name / "activate"))
    yield script if os.name == "nt" else f"source {script}"
