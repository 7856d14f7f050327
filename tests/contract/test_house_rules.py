"""The code follows its own rules: format, lint, types, import layers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    ["ruff format --check .", "ruff check .", "mypy", "lint-imports"],
)
def test_the_code_is_clean(command: str) -> None:
    program, *arguments = command.split()
    result = subprocess.run(
        [BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


NO_CIRCLES = """
[tool.importlinter]
root_package = "train_pytorch_model"
exclude_type_checking_imports = false

[[tool.importlinter.contracts]]
name = "No circles, with the imports that only types need"
type = "acyclic_siblings"
ancestors = ["train_pytorch_model", "train_pytorch_model.*"]
"""


def test_there_is_no_circle_either_with_imports_that_only_types_need(tmp_path: Path) -> None:
    """import-linter counts such imports in all contracts of a file, or in none."""
    (tmp_path / "no_circles.toml").write_text(NO_CIRCLES)
    result = subprocess.run(
        [BIN / "lint-imports", "--config", tmp_path / "no_circles.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


# The rooms that work with any kind of labels: it is chosen below them, as a `LabelKind` of the data
# and `Answers` of the model, and passed down.
@pytest.mark.parametrize(
    "room",
    [
        "commands",
        "data",
        "distributed",
        "export",
        "inference",
        "networks",
        "publishing",
        "quality",
        "reports",
        "reviewing",
        "tracking",
        "training",
    ],
)
def test_a_room_does_not_ask_whether_images_have_lists_of_categories(room: str) -> None:
    modules = list((ROOT / "src" / "train_pytorch_model" / room).glob("*.py"))
    assert modules
    asking = [path.name for path in modules if ASKS.search(path.read_text(encoding="utf-8"))]
    assert asking == []


ASKS = re.compile(r"is_multi_label|thresholds is (not )?None")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout: nothing is tracked")
def test_the_visible_top_level_is_small() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    assert "component.yaml" in tracked
    top_level = {name.partition("/")[0] for name in tracked if name and not name.startswith(".")}
    assert top_level == {
        "LICENSE",
        "README.md",
        "component.yaml",
        "environment",
        "pyproject.toml",
        "src",
        "tests",
    }
