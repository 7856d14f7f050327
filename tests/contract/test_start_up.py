"""Heavy packages are loaded only when needed, so that help and refusals come at once."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "azure",
    "matplotlib",
    "mlflow",
    "pandas",
    "pyarrow",
    "scipy",
    "sklearn",
    "torch",
    "torchvision",
}
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


def test_what_decoder_processes_import_is_light() -> None:
    imported = "import sys; from train_pytorch_model.data import decoder_process, decoders\n"
    imported += "print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", imported], capture_output=True, text=True, check=True
    )
    assert {name.partition(".")[0] for name in ended.stdout.split()} & {
        *HEAVY,
        "rich",
        "tyro",
    } == set()


BUILT = """
import sys
from train_pytorch_model.image_classifier.architectures import build
network = build("resnet18", False, 3)
assert "torch._dynamo" not in sys.modules
import torch._dynamo.utils
from torchvision.ops import roi_align
assert sys.modules[roi_align.__module__].is_compile_supported("cpu") is (
    torch._dynamo.utils.is_compile_supported("cpu")
)
"""


def test_a_network_is_built_without_the_compiler_which_can_still_be_loaded() -> None:
    subprocess.run([sys.executable, "-c", BUILT], check=True)


INTERRUPTED = """
import os, runpy, signal, sys

class CtrlC:
    def find_spec(name, path=None, target=None):
        if name == "tyro":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC)
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.parametrize("module", ["train_pytorch_model", "train_pytorch_model.run"])
def test_ctrl_c_before_the_program_is_loaded_shows_no_traceback(
    tmp_path: Path, module: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, *REFUSED],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
