"""What only a separate process can show: entry points, imports, signals."""

import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import launchers
from tests.ports import free_port
from tests.programs.program import assert_refused, run_process, train_arguments


def test_the_module_prints_help() -> None:
    ended = run_process(sys.executable, "-m", "train_pytorch_model", "--help")
    assert ended.status == 0
    for verb in ("train", "init-model", "score", "quickstart"):
        assert verb in ended.stdout
    assert ended.stderr == ""


def test_the_console_script_is_the_same_program() -> None:
    script = Path(sysconfig.get_path("scripts")) / "train-pytorch-model"
    ended = run_process(script, "train", "--help")
    assert ended.status == 0
    for flag in ("--untrained-model", "--warmup-step-number", "--print-frequency", "--dry-run"):
        assert flag in ended.stdout


def test_bad_inputs_are_refused_before_pytorch_is_loaded(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    """Tests the component's entry script, which is `train` without the verb."""
    arguments = train_arguments(
        folders, untrained, tmp_path / "trained", training=tmp_path / "missing"
    )[1:]
    ended = run_process(
        sys.executable, "-X", "importtime", "-m", "train_pytorch_model.run", *arguments
    )
    assert ended.status == 3
    assert (
        f'\nInvalidDatasetError: Training dataset "{tmp_path}/missing" is not valid' in ended.stderr
    )
    imported = re.findall(r"^import time: .*\| +(\S+)$", ended.stderr, re.MULTILINE)
    assert "numpy" in imported
    assert not {"torch", "torchvision", "mlflow", "pandas"} & set(imported)
    assert list(tmp_path.iterdir()) == []


def test_a_process_whose_launcher_has_ended_waits_for_nobody(
    folders: Path, untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in launchers.torchrun(1, 2, 1, 2, TORCHELASTIC_USE_AGENT_STORE="True").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    arguments = train_arguments(folders, untrained, tmp_path / "trained")
    ended = run_process(sys.executable, "-m", "train_pytorch_model", *arguments)
    assert_refused(ended, 4, "LostRankError: torchrun has started this process, and has ended.")


def test_ctrl_c_ends_training_with_one_message_and_a_checkpoint(
    folders: Path, untrained: Path, tmp_path: Path
) -> None:
    options = ("--epochs", "100000", "--patience", "100000", "--learning-rate", "1e-9")
    output = tmp_path / "trained"
    arguments = train_arguments(folders, untrained, output, *options)
    process = subprocess.Popen(
        [sys.executable, "-m", "train_pytorch_model", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("Epoch 2/"):
            process.send_signal(signal.SIGINT)
            break
    rest, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGINT, said + rest + errors
    run = tmp_path / "trained.run"
    assert errors.count("Stopped by SIGINT. ") == 1
    assert "Traceback" not in said + rest + errors
    assert not (output / "_meta.yaml").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["trained.run"]
    assert {path.name for path in run.iterdir()} >= {"config.json", "checkpoints", "metrics.jsonl"}
    assert not (run / "lock").exists()
    assert list((run / "checkpoints").glob("*.json"))
