"""Links from one page to another: relative, and only to a page that is there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from train_pytorch_model.evaluation.directory import PAGE
from train_pytorch_model.formats.trained_directory import EVALUATION, REPORT

MAX_UP = 2  # folders; a link from further away would tell how this machine names its folders


@dataclass(frozen=True)
class PageLink:
    """A link to another page."""

    address: str
    title: str


def pages_about(model: Path) -> dict[str, Path]:
    """Return where the pages about a trained model may be, by their titles."""
    return {
        "Report on the training": model / REPORT,
        "Evaluation on the test images": model / EVALUATION / PAGE,
    }


def address_of(page: Path, folder: Path) -> str:
    """Return the address of a page as seen from one in `folder`.

    It is empty if there is no such page, or if it is not near.
    """
    if not page.exists():
        return ""
    try:
        path = Path(os.path.relpath(page.resolve(), folder.resolve()))
    except ValueError:  # it is on another drive of Windows
        return ""
    num_up = path.parts.count(os.pardir)
    is_over_root = num_up >= len(folder.resolve().parts) - 1
    if num_up > MAX_UP or (num_up and is_over_root):
        return ""
    return quote(path.as_posix())


def links_to(pages: Mapping[str, Path], folder: Path) -> list[PageLink]:
    """Return links to those of the pages, by their titles, that are there, from one in `folder`."""
    addresses = {title: address_of(page, folder) for title, page in pages.items()}
    return [PageLink(address, title) for title, address in addresses.items() if address]
