"""A host of Azure ML's managed endpoints: the environment that a model declares, and a scoring
script in it.

In the gate, packages of the tests' own environment stand in for those that the model pins alike,
PyTorch above all: `python -m tests.programs.azure_host MODEL FOLDER` installs everything, minutes
and gigabytes.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

# Of another version for azure-ai-ml, so that the host must get its own; and not the project itself.
NOT_SHARED = ("azure", "opentelemetry", "train_pytorch_model", "__editable__", "pip")

# What Azure ML's own script for MLflow models imports and calls, at start-up and for a request:
# written for these tests. The server hands `run` the value of `input_data`, of which
# inference-schema makes a table.
SCRIPT = """
import json, os, sys
from pathlib import Path

sys.modules["train_pytorch_model"] = None

import mlflow, pandas
from azureml.ai.monitoring import Collector
from inference_schema.parameter_types.pandas_parameter_type import PandasParameterType
from inference_schema.schema_decorators import input_schema, output_schema
from mlflow.models import Model
from mlflow.pyfunc.scoring_server import _get_jsonable_obj

root = Path(os.environ["AZUREML_MODEL_DIR"], os.environ["MLFLOW_MODEL_FOLDER"])
description = Model.load(root)
example = json.loads((root / description.saved_input_example_info["artifact_path"]).read_text())
outputs = description.signature.outputs
question = pandas.DataFrame(example["data"], columns=example["columns"])
answer = pandas.DataFrame(columns=outputs.input_names())
answer = answer.astype(dict(zip(outputs.input_names(), outputs.pandas_types())))
model = mlflow.pyfunc.load_model(root)

def init():
    if os.environ.get("ENABLE_MDC"):
        Collector(name="model_inputs")

@input_schema("input_data", PandasParameterType(question, enforce_shape=False, orient="split"))
@output_schema(PandasParameterType(answer, enforce_shape=False, orient="records"))
def run(input_data):
    return _get_jsonable_obj(model.predict(input_data, params=None), pandas_orient="records")
"""


def make_host(model: Path, folder: Path, not_shared: tuple[str, ...] | None = NOT_SHARED) -> Path:
    """Make the environment of the model's conda.yaml in `folder`; returns Azure ML's server in it.

    Skips the test where no package can be downloaded; fails if the packages do not fit together.
    """
    python = folder / "host" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "host"], check=True)
    if not_shared is not None:
        (site,) = (folder / "host").glob("lib/*/site-packages")
        (site / "shared.pth").write_text(str(_share(folder / "shared", not_shared)))
    document = yaml.safe_load((model / "conda.yaml").read_text())
    (pip,) = (entry["pip"] for entry in document["dependencies"] if isinstance(entry, dict))
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(pip))
    pip_install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--retries",
        "0",
    ]
    command = [*pip_install, "--requirement", str(requirements)]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if "(from versions: none)" in installed.stderr:
        pytest.skip("the packages of Azure ML's server cannot be downloaded here")
    assert installed.returncode == 0, installed.stderr
    # pip says so before it downloads versions one after the other, which takes an endpoint minutes.
    assert "looking at multiple versions" not in installed.stdout
    return python.with_name("azmlinfsrv")


def _share(folder: Path, not_shared: tuple[str, ...]) -> Path:
    """Fill a folder with links to the packages of this environment."""
    folder.mkdir()
    for path in (path for path in map(Path, sys.path) if path.name == "site-packages"):
        for entry in path.iterdir():
            link = folder / entry.name
            if (
                not entry.name.startswith(not_shared)
                and entry.suffix != ".pth"
                and not link.exists()
            ):
                link.symlink_to(entry)
    return folder


if __name__ == "__main__":
    print(make_host(Path(sys.argv[1]), Path(sys.argv[2]).absolute(), not_shared=None))
