"""Lines of a shell that run this program, as a person is told to."""

import shlex
from pathlib import Path

from train_pytorch_model.machine.launch import PROGRAM

COMMAND = f"python -m {PROGRAM}"


def conversion_command(folder: Path, output: str, *options: str) -> str:
    """Return the line of a shell that makes an image directory of a folder."""
    line = [f"{COMMAND} convert --input {shlex.quote(str(folder))}", *options, f"--output {output}"]
    return " ".join(line)


def correction_command(folder: Path, has_categories: bool) -> str:
    """Return the line of a shell that trains with the decisions about the images of a folder.

    New images without a category join those of another folder, by the table that is among them.
    """
    if has_categories:
        return f"{COMMAND} fit {shlex.quote(str(folder))} --corrections corrections.csv"
    table = shlex.quote(str(folder / "corrections.csv"))
    return f"{COMMAND} fit FOLDER --corrections {table}"
