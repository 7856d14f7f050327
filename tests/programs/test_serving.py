"""The trained directory, served by MLflow's own server over HTTP without this package."""

import base64
import json
import os
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.painting import encode, paint
from tests.ports import free_port
from tests.programs.conftest import Trained
from tests.programs.program import run_process
from tests.programs.server import post, serving
from tests.readme import blocks, commands_of

# Python runs it at start-up; afterwards our package cannot be imported, installed or not.
WITHOUT_OUR_PACKAGE = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "train_pytorch_model":
            raise ImportError("train_pytorch_model is not installed here")

sys.meta_path.insert(0, Blocker())
"""
BIN = Path(
    sys.executable
).parent  # mlflow starts uvicorn by its name, as in an activated environment


@pytest.fixture(scope="module")
def url(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the trained model."""
    blocker, port = tmp_path_factory.mktemp("site"), free_port()
    (blocker / "sitecustomize.py").write_text(WITHOUT_OUR_PACKAGE)
    (served,) = (words for words in commands_of("Serving and exporting") if words[0] == "mlflow")
    own = {"trained": str(trained.output), "5001": str(port)}
    command = [sys.executable, "-m", *(own.get(word, word) for word in served), "--workers", "1"]
    environment = {"PYTHONPATH": str(blocker), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with serving(command, environment, blocker, f"http://127.0.0.1:{port}/ping"):
        yield f"http://127.0.0.1:{port}/invocations"


def predictions(url: str, payload: object) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = post(url, payload)["predictions"]
    return answer


def photo(category: str, kind: str) -> str:
    return base64.b64encode(encode(paint(category, 200, (50, 40)), kind)).decode()


def test_a_photo_is_answered_with_label_and_probabilities(url: str) -> None:
    (answer,) = predictions(
        url, {"dataframe_split": {"columns": ["image"], "data": [[photo("red", "JPEG")]]}}
    )
    probabilities = [answer[f"Scored Probabilities_{name}"] for name in ("blue", "green", "red")]
    assert sum(probabilities) == pytest.approx(1)
    assert (
        answer["Scored Labels"] == ("blue", "green", "red")[probabilities.index(max(probabilities))]
    )


def test_the_readmes_client_gets_a_prediction(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(encode(paint("red", 200, (50, 40)), "JPEG"))
    _, client, _ = blocks("python")["Serving and exporting"]
    local = client.replace("http://127.0.0.1:5001/invocations", url)
    assert local != client
    answered = run_process(sys.executable, "-c", local)
    assert answered.status == 0, answered.stderr
    assert json.loads(answered.stdout)["predictions"][0]["Scored Labels"] in (
        "blue",
        "green",
        "red",
    )


def test_a_batch_of_dataframe_records_is_answered_in_order(url: str) -> None:
    files = [photo("red", "JPEG"), photo("blue", "PNG"), photo("green", "WEBP")]
    together = predictions(url, {"dataframe_records": [{"image": file} for file in files]})
    alone = [
        predictions(url, {"dataframe_split": {"columns": ["image"], "data": [[file]]}})[0]
        for file in files
    ]
    assert len(together) == 3
    for one, other in zip(together, alone, strict=True):
        assert one["Scored Labels"] == other["Scored Labels"]
        assert one["Scored Probabilities_red"] == pytest.approx(
            other["Scored Probabilities_red"], abs=1e-5
        )


def test_an_image_that_cannot_be_read_costs_its_own_row_only(url: str) -> None:
    rows = [[photo("red", "JPEG")], ["aGVsbG8="], [None], [photo("blue", "PNG")]]
    answer = predictions(url, {"dataframe_split": {"columns": ["image"], "data": rows}})
    assert [bool(row["error"]) for row in answer] == [False, True, True, False]
    assert [row["Scored Labels"] is None for row in answer] == [False, True, True, False]


@pytest.mark.parametrize(
    ("column", "message"),
    [("image", "not a base64-encoded image file"), ("photo", "no column `image`")],
)
def test_a_request_without_an_image_is_refused_with_the_reason(
    url: str, column: str, message: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, {"dataframe_split": {"columns": [column], "data": [["no base64!"]]}})
    with caught.value as answer:
        assert answer.code == 400
        assert message in json.load(answer)["message"]
