"""Lists of categories on a GPU: a training beside one of the CPU, and one that is killed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.programs.test_multi_label import paint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

# Trains, and prints the loss and the mean average precision on the test images.
RUN = """
import json, signal, sys

from tests.faults.injections import a_checkpoint_after_every_step, signal_at_step
from tests.trainings import SMALL
from train_pytorch_model import fit

folder, output, is_killed = sys.argv[1:]
a_checkpoint_after_every_step()
if is_killed == "killed":
    signal_at_step(7, [signal.SIGKILL])  # in the second epoch
recipe = {"precision": "float32", "deterministic": True, "image_size": 32}
model = fit(folder, architecture=SMALL, from_scratch=True, epochs=3, output=output, **recipe)
print(json.dumps([model.evaluation.metrics[n] for n in ("loss", "mean_average_precision")]))
"""
GPU: dict[str, str] = {}
CPU = {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lists") / "images"
    root.mkdir()
    rows = ["file_name,labels"]
    for index in range(120):
        image, labels = paint(index)
        image.save(root / f"{index}.png")
        rows.append(f"{index}.png,{';'.join(labels)}")
    (root / "labels.csv").write_text("\n".join(rows))
    return root


def train(
    folder: Path, output: Path, device: dict[str, str], killed: str = "to its end"
) -> tuple[int, str]:
    """Return the exit status of a training, and the last line that it has printed."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN, folder, output, killed],
        env=os.environ | device,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout.strip().rpartition("\n")[2]


def weights_of(output: Path) -> str:
    return hashlib.sha256((output / "model").read_bytes()).hexdigest()


def test_a_gpu_learns_lists_as_a_cpu_does_and_resumes_with_the_same_bits(
    folder: Path, tmp_path: Path
) -> None:
    status, found = train(folder, tmp_path / "gpu", GPU)
    assert status == 0
    _, expected = train(folder, tmp_path / "cpu", CPU)
    assert json.loads(found) == pytest.approx(json.loads(expected), rel=0.05)

    status, _ = train(folder, tmp_path / "killed", GPU, "killed")
    assert status == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model").exists()
    status, again = train(folder, tmp_path / "killed", GPU)
    assert status == 0
    assert again == found
    assert weights_of(tmp_path / "killed") == weights_of(tmp_path / "gpu")
