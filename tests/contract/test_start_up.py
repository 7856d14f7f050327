"""What is not loaded before it is needed: help and refusals come at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"azure", "matplotlib", "mlflow", "pandas", "pyarrow", "scipy", "sklearn", "torch", "torchvision"}
# numpy, Pillow, rich, tyro, msgspec and the standard library; loading a module takes about 0.4 ms.
MAX_MODULES = 600

REFUSED = ["train", "--untrained-model", "a", "--training-dataset", "b"]
REFUSED += ["--validation-dataset", "c", "--trained-model", "d"]

PROGRAM = """
import json, sys
sys.argv = ["train-pytorch-model", *json.loads(sys.argv[1])]
from train_pytorch_model.__main__ import main
try:
    main()
finally:
    print("\\n" + json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (
            REFUSED,
            3,
        ),
    ],
    ids=["help", "help of a verb", "a refusal"],
)
def test_nothing_heavy_is_loaded_for_help_or_a_refusal(
    tmp_path: Path, arguments: list[str], status: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == status, ended.stderr
    modules = json.loads(ended.stdout.splitlines()[-1])
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    assert len(modules) < MAX_MODULES
