"""A command that was killed while it wrote its output can be repeated, whichever verb it is."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from train_pytorch_model.datasets.conversion import OUTPUT
from train_pytorch_model.formats.outputs import check_output, writing_directory
from train_pytorch_model.formats.reading import INCOMPLETE, META

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no /proc")

KILLED = """
import os, signal, sys
from pathlib import Path
from train_pytorch_model.formats.outputs import writing_directory
with writing_directory(Path(sys.argv[1]), {"type": "X"}, "output") as root:
    (root / "images").mkdir()
    (root / "images/half.png").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_output_of_a_killed_process_is_written_again(tmp_path: Path) -> None:
    output = tmp_path / "output"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(output)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(path.name for path in output.iterdir()) == [INCOMPLETE, "images"]
    check_output(output, OUTPUT)
    with writing_directory(output, {"type": "X"}, OUTPUT) as root:
        assert [path.name for path in root.iterdir()] == [INCOMPLETE]
    assert [path.name for path in output.iterdir()] == [META]
