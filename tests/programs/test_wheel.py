"""The wheel is the whole program: it works where there is no clone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel, as `pip install` would unpack it."""
    dist, target = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("installed")
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(dist),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(installed: Path, *arguments: str) -> str:
    """What the installed program prints, in a folder that is no clone."""
    command = [sys.executable, "-m", "train_pytorch_model", *arguments]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    ended = subprocess.run(
        command, cwd=installed.parent, env=environment, capture_output=True, text=True, check=True
    )
    return ended.stdout


def test_the_wheel_has_all_files_of_the_package(installed: Path) -> None:
    source = ROOT / "src" / "train_pytorch_model"
    expected = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    packed = installed / "train_pytorch_model"
    assert {path for path in expected if "__pycache__" not in path.parts} <= {
        path.relative_to(packed) for path in packed.rglob("*")
    }
    assert (packed / "environment" / "Dockerfile").exists()
    assert yaml.safe_load((packed / "component.yaml").read_text())["name"] == "train_pytorch_model"


def test_the_installed_program_runs(installed: Path) -> None:
    where = "import train_pytorch_model; print(train_pytorch_model.__file__)"
    environment = os.environ | {"PYTHONPATH": str(installed)}
    found = subprocess.run(
        [sys.executable, "-c", where],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)
    assert "quickstart" in run(installed, "--help")
    output = str(installed.parent / "untrained")
    assert "is in" in run(
        installed, "init-model", "--architecture", "mobilenet_v3_small", "--output", output
    )
