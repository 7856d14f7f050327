"""Requests to Azure ML endpoints that serve the trained directory unchanged, and their responses."""

import base64
import json
import shlex
import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pandas as pd
import pytest

from tests.painting import encode, paint
from tests.ports import free_port
from tests.programs.conftest import Trained
from tests.programs.server import post, serving

# Like Azure ML's own script for MLflow models: `input_data` is a table, the response a list of rows.
SCRIPT = """
import json, os, sys
sys.modules["train_pytorch_model"] = None
import mlflow, pandas

def init():
    global model
    model = mlflow.pyfunc.load_model(os.environ["AZUREML_MODEL_DIR"])

def run(body):
    answer = model.predict(pandas.DataFrame(**json.loads(body)["input_data"]))
    return json.loads(answer.to_json(orient="records"))
"""
README = Path(__file__).parents[2] / "README.md"
COLUMNS = {*(f"Scored Probabilities_{name}" for name in ("blue", "green", "red")), "Scored Labels"}


def photo(category: str, index: int) -> str:
    return base64.b64encode(encode(paint(category, index, (50, 40)), "JPEG")).decode()


@pytest.fixture(scope="module")
def url(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Azure ML's own server, serving the trained model."""
    program = shutil.which("azmlinfsrv")
    if program is None:
        # It needs a separate environment: azure-ai-ml requires a different version of OpenTelemetry.
        pytest.skip("azmlinfsrv of azureml-inference-server-http is not on the PATH")
    folder, port = tmp_path_factory.mktemp("endpoint"), free_port()
    (folder / "score.py").write_text(SCRIPT)
    command = (program, "--entry_script", folder / "score.py", "--port", str(port))
    with serving(command, {"AZUREML_MODEL_DIR": str(trained.output)}, folder, f"http://127.0.0.1:{port}/"):
        yield f"http://127.0.0.1:{port}/score"


def by_the_readme(beginning: str, *arguments: str | Path) -> str:
    """The output of README's Python one-liner that starts with `beginning`."""
    (line,) = (line for line in README.read_text().splitlines() if line.startswith(f'python -c "{beginning}'))
    code = shlex.split(line)[2]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def save(folder: Path, category: str, index: int) -> Path:
    path = folder / f"{index}.jpg"
    path.write_bytes(base64.b64decode(photo(category, index)))
    return path


def test_an_online_endpoint_returns_a_row_per_image(url: str, tmp_path: Path) -> None:
    files = [save(tmp_path, "red", 200), save(tmp_path, "blue", 201)]
    answer = post(url, json.loads(by_the_readme("import base64, json", *files)))
    assert [set(row) for row in answer] == [COLUMNS, COLUMNS]
    for row in answer:
        probabilities = {name: value for name, value in row.items() if name != "Scored Labels"}
        assert sum(probabilities.values()) == pytest.approx(1)
        best = max(probabilities, key=lambda name: probabilities[name])
        assert best == f"Scored Probabilities_{row['Scored Labels']}"


def test_an_online_endpoint_rejects_a_row_that_is_not_an_image(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, {"input_data": {"columns": ["image"], "data": [[photo("red", 200)], ["no base64!"]]}})
    with caught.value as answer:
        assert answer.code >= 400


@pytest.mark.filterwarnings("ignore")  # MLflow's own warnings
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_batch_endpoint_scores_a_table_of_images(suffix: str, trained: Trained, tmp_path: Path) -> None:
    files = [save(tmp_path, "red", 200), save(tmp_path, "blue", 201), save(tmp_path, "green", 202)]
    path = tmp_path / "images.csv"
    by_the_readme("import base64, pathlib", path, *files)
    # Without code, a batch deployment reads each file like this, and passes it to the model in one call.
    read = pd.read_csv(path)
    if suffix == ".parquet":
        read.to_parquet(path.with_suffix(suffix))
        read = pd.read_parquet(path.with_suffix(suffix))
    scored = mlflow.pyfunc.load_model(str(trained.output)).predict(read)
    assert set(scored) == COLUMNS
    assert len(scored) == 3
