"""What the endpoints of Azure ML take and answer, from the trained directory as it is."""

import base64
import shutil
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pandas as pd
import pytest

from tests.painting import encode, paint
from tests.programs.conftest import Trained
from tests.programs.server import free_port, post, serving

# As Azure ML's own for MLflow models: the table is the value of `input_data`, the answer a list of its rows.
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
COLUMNS = {*(f"Scored Probabilities_{name}" for name in ("blue", "green", "red")), "Scored Labels"}


def photo(category: str, index: int) -> str:
    return base64.b64encode(encode(paint(category, index, (50, 40)), "JPEG")).decode()


@pytest.fixture(scope="module")
def url(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Azure ML's own server with the trained model."""
    program = shutil.which("azmlinfsrv")
    if program is None:
        # In an environment of its own: it and azure-ai-ml want different versions of OpenTelemetry.
        pytest.skip("azmlinfsrv of azureml-inference-server-http is not on the PATH")
    folder, port = tmp_path_factory.mktemp("endpoint"), free_port()
    (folder / "score.py").write_text(SCRIPT)
    command = (program, "--entry_script", folder / "score.py", "--port", str(port))
    with serving(command, {"AZUREML_MODEL_DIR": str(trained.output)}, folder, f"http://127.0.0.1:{port}/"):
        yield f"http://127.0.0.1:{port}/score"


def test_an_online_endpoint_answers_a_row_for_each_image(url: str) -> None:
    files = [[photo("red", 200)], [photo("blue", 201)]]
    answer = post(url, {"input_data": {"columns": ["image"], "data": files}})
    assert [set(row) for row in answer] == [COLUMNS, COLUMNS]
    for row in answer:
        probabilities = {name: value for name, value in row.items() if name != "Scored Labels"}
        assert sum(probabilities.values()) == pytest.approx(1)
        best = max(probabilities, key=lambda name: probabilities[name])
        assert best == f"Scored Probabilities_{row['Scored Labels']}"


def test_an_online_endpoint_says_which_row_is_no_image(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, {"input_data": {"columns": ["image"], "data": [[photo("red", 200)], ["no base64!"]]}})
    with caught.value as answer:
        assert answer.code >= 400


@pytest.mark.filterwarnings("ignore")  # MLflow's own
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_batch_endpoint_scores_a_table_of_images(suffix: str, trained: Trained, tmp_path: Path) -> None:
    table = pd.DataFrame({"image": [photo("red", 200), photo("blue", 201), photo("green", 202)]})
    path = tmp_path / f"images{suffix}"
    # Without code, a batch deployment reads each file so, and gives it to the model at once.
    if suffix == ".csv":
        table.to_csv(path, index=False)
        read = pd.read_csv(path)
    else:
        table.to_parquet(path)
        read = pd.read_parquet(path)
    scored = mlflow.pyfunc.load_model(str(trained.output)).predict(read)
    assert set(scored) == COLUMNS
    assert len(scored) == 3
