"""README and the pages that it links, and their commands by heading."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    path: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(ROOT.glob(".github/docs/*.md")))
}
README = "\n".join(PAGES.values())
PROGRAM = ["python", "-m", "train_pytorch_model"]


def blocks(language: str) -> Mapping[str, list[str]]:
    """Heading → the code blocks in that language under it."""
    found: dict[str, list[str]] = {}
    for chapter in re.split(r"^## ", README, flags=re.MULTILINE)[1:]:
        heading, _, text = chapter.partition("\n")
        if code := re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            found[heading] = code
    return found


def commands_of(heading: str) -> list[list[str]]:
    """The shell commands under a heading, each split into words."""
    return [shlex.split(line) for block in blocks("sh")[heading] for line in block.splitlines()]


def verbs_of(heading: str) -> list[list[str]]:
    """Those of this program, each starting with its verb."""
    return [words[3:] for words in commands_of(heading) if words[:3] == PROGRAM]
