"""What is beside the folders of the parts, and is not used."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.formats.listing import list_folder, list_images, natural_order
from train_pytorch_model.formats.reading import MalformedFileError


def describe_unused(folder: Path, parts: Mapping[str, Path]) -> str:
    """Return which images are not in the folder of a part; empty if all are."""
    used = {path.name for path in parts.values()}
    folders, loose = list_folder(folder, "", Counter())
    counts = {
        repr(name): count_images(folder, name)
        for name in sorted(folders, key=natural_order)
        if name not in used
    }
    counts["beside the folders"] = len(loose)
    unused = [
        f"{where}: {counted(count, 'image', 'images')}" for where, count in counts.items() if count
    ]
    if not unused:
        return ""
    names = ", ".join(f"{path.name!r} for {part}" for part, path in parts.items())
    return (
        f"taken are {names}. These are not used:{bulleted(unused)}\nTo use them, move them into the"
        " folder of a part."
    )


def count_images(folder: Path, name: str) -> int:
    """Return how many images there are at any depth in a folder in `folder`."""
    try:
        return len(list_images(folder, f"{name}/", Counter()))
    except MalformedFileError:  # no images that could be used
        return 0
