"""Published models bring their own code, and several work side by side in a process."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from train_pytorch_model.tracking.load_image_classifier import _load_pyfunc


def published(root: Path, answer: str) -> str:
    """The weights of a published model, whose code returns this answer with the path."""
    code = root / "code" / "image_classifier"
    code.mkdir(parents=True)
    (code / "__init__.py").touch()
    (code / "part.py").write_text(f"ANSWER = {answer!r}")
    (code / "serving.py").write_text(
        "from .part import ANSWER\ndef _load_pyfunc(path, config):\n    return ANSWER, path, config"
    )
    return str(root / "model")


def test_each_model_runs_its_own_code_beside_a_package_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "image_classifier", ModuleType("image_classifier"))
    paths = [published(tmp_path / name, name) for name in ("first", "second")]
    assert [_load_pyfunc(path, {"a": 1}) for path in paths] == [
        ("first", paths[0], {"a": 1}),
        ("second", paths[1], {"a": 1}),
    ]
    assert _load_pyfunc(paths[0], {})[0] == "first"


def test_models_with_the_same_code_share_it(tmp_path: Path) -> None:
    before = set(sys.modules)
    for name in ("one", "copy"):
        _load_pyfunc(published(tmp_path / name, "the same"), {})
    packages = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert len([name for name in packages if name.startswith("image_classifier_")]) == 1
