"""Requests to Azure ML endpoints that serve the trained directory as it is, and their responses."""

import base64
import json
import shlex
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
from tests.programs.azure_host import SCRIPT, make_host
from tests.programs.conftest import Trained
from tests.programs.server import post, serving
from tests.readme import README

CATEGORIES = ("blue", "green", "red")
COLUMNS = {*(f"Scored Probabilities_{name}" for name in CATEGORIES), "Scored Labels", "error"}


def photo(category: str, index: int) -> str:
    return base64.b64encode(encode(paint(category, index, (50, 40)), "JPEG")).decode()


@pytest.fixture(scope="module")
def url(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Azure ML's own server, in the environment that the trained model declares."""
    folder, port = tmp_path_factory.mktemp("endpoint"), free_port()
    program = make_host(trained.output, folder)
    (folder / "score.py").write_text(SCRIPT)
    names = {
        "AZUREML_MODEL_DIR": str(trained.output.parent),
        "MLFLOW_MODEL_FOLDER": trained.output.name,
    }
    command = (program, "--entry_script", folder / "score.py", "--port", str(port))
    with serving(command, names, folder, f"http://127.0.0.1:{port}/"):
        yield f"http://127.0.0.1:{port}/score"


def refusal(url: str, columns: list[str], rows: list[list[object]]) -> str:
    """The message of a request that is answered with the status 400."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, {"input_data": {"columns": columns, "data": rows}})
    with caught.value as answer:
        assert answer.code == 400
        message: str = json.load(answer)["message"]
    return message


def by_the_readme(beginning: str, *arguments: str | Path) -> str:
    """The output of README's Python one-liner that starts with `beginning`."""
    (line,) = (line for line in README.splitlines() if line.startswith(f'python -c "{beginning}'))
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
        probabilities = {
            name: value for name, value in row.items() if name.startswith("Scored Prob")
        }
        assert sum(probabilities.values()) == pytest.approx(1)
        best = max(probabilities, key=lambda name: probabilities[name])
        assert best == f"Scored Probabilities_{row['Scored Labels']}"


def test_an_image_that_cannot_be_read_costs_its_own_row_only(url: str) -> None:
    rows = [[photo("red", index)] for index in range(200, 232)]
    rows[7] = ["aGVsbG8="]
    answer = post(url, {"input_data": {"columns": ["image"], "data": rows}})
    assert [row for row, scored in enumerate(answer) if scored["error"]] == [7]
    assert "not an image of a known format" in answer[7].pop("error")
    assert set(answer[7].values()) == {None}
    assert all(
        scored["Scored Labels"] in CATEGORIES for row, scored in enumerate(answer) if row != 7
    )


def test_an_online_endpoint_says_what_is_wrong_with_a_request_without_images(url: str) -> None:
    assert "not a base64-encoded image file" in refusal(url, ["image"], [["no base64!"], [None]])
    assert "no column `image`" in refusal(url, ["photo"], [[photo("red", 200)]])


@pytest.mark.filterwarnings("ignore")  # MLflow's own warnings
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_batch_endpoint_scores_a_table_of_images(
    suffix: str, trained: Trained, tmp_path: Path
) -> None:
    files = [save(tmp_path, "red", 200), save(tmp_path, "blue", 201), save(tmp_path, "green", 202)]
    path = tmp_path / "images.csv"
    by_the_readme("import base64, pathlib", path, *files)
    # Without code, a batch deployment reads each file like this, and passes it to the model in one
    # call.
    read = pd.read_csv(path)
    if suffix == ".parquet":
        read.to_parquet(path.with_suffix(suffix))
        read = pd.read_parquet(path.with_suffix(suffix))
    scored = mlflow.pyfunc.load_model(str(trained.output)).predict(read)
    assert set(scored) == COLUMNS | {"name"}
    assert list(scored["name"]) == [str(file) for file in files]
