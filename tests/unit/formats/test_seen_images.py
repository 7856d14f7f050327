"""What a model saw in images: tables that `score` and a served model write, and their faults."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from train_pytorch_model.formats.histograms import HISTOGRAMS, read_histograms
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.seen_images import (
    FEATURES,
    SEEN_IMAGES,
    UNKNOWN,
    join_seen,
    read_seen_images,
    seen_table,
)

CATEGORIES = ("ants", "bees")
ANSWERS = {
    "name": ["a", "b", "c"],
    "Scored Probabilities_ants": [0.9, 0.3, None],
    "Scored Probabilities_bees": [0.1, 0.7, None],
    "Scored Labels": ["ants", "unknown", None],
    "error": [None, None, "no image"],
    "energy": [-3.0, 1.0, None],
    "brightness": [0.2, 0.4, None],
}


def test_what_score_writes_is_read(tmp_path: Path) -> None:
    features = {name: np.array([0.25, np.nan]) for name in FEATURES}
    table = seen_table(["x/1.png", "caf\udce9.png"], ["bees", "ants"], features)
    pq.write_table(table, tmp_path / SEEN_IMAGES)
    seen = read_seen_images(tmp_path, CATEGORIES)
    assert list(seen.names) == ["x/1.png", "caf\\udce9.png"]
    assert seen.predicted.tolist() == [1, 0]
    assert seen.confidences[0] == 0.25
    assert np.isnan(seen.features["pixels"][1])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_answers_of_a_served_model_are_read_without_what_was_no_image(
    suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"answers.{suffix}"
    table = pd.DataFrame(ANSWERS)
    if suffix == "json":
        table.to_json(path, orient="records")
    elif suffix == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    seen = read_seen_images(path, CATEGORIES)
    assert list(seen.names) == ["a", "b"]
    assert seen.predicted.tolist() == [0, UNKNOWN]
    assert seen.confidences.tolist() == [0.9, 0.7]
    assert seen.features["energy"].tolist() == [-3.0, 1.0]
    assert np.isnan(seen.features["aspect_ratio"]).all()
    assert len(join_seen([seen, seen]).names) == 4


def test_categories_and_names_that_are_numbers_are_read_as_they_were_written(
    tmp_path: Path,
) -> None:
    head = "name,Scored Labels,energy,Scored Probabilities_01"
    (tmp_path / "answers.csv").write_text(f"{head}\n007,01,-1,0.9\nno image,,,\n")
    seen = read_seen_images(tmp_path / "answers.csv", ("01", "02"))
    assert seen.names == ["007"]
    assert seen.predicted.tolist() == [0]


def test_the_answer_of_mlflows_server_is_read(tmp_path: Path) -> None:
    row = '{"Scored Labels": "bees", "Scored Probabilities_bees": 0.75, "energy": -2}'
    (tmp_path / "answer.json").write_text(f'{{"predictions": [{row}]}}')
    seen = read_seen_images(tmp_path / "answer.json", CATEGORIES)
    assert seen.predicted.tolist() == [1]
    assert seen.confidences.tolist() == [0.75]


def test_what_is_no_number_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text(
        "label,energy,Scored Probabilities_ants,Scored Probabilities_bees\n"
        "ants,low,high,0.2\nbees,-1,0.25,0.75\n"
    )
    seen = read_seen_images(tmp_path / "answers.csv", CATEGORIES)
    assert np.isnan(seen.confidences).tolist() == [True, False]
    assert np.isnan(seen.features["energy"]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", "label,probability\nants,1\n", "it has no column 'energy': `score` writes seen"),
        ("t.csv", "energy\n1\n", "it has no column 'label'"),
        ("t.csv", "label,energy\nants,1\n", "it has no column with probabilities."),
        ("t.csv", "", r"t\.csv cannot be read"),
        ("t.json", "{}", r"t\.json cannot be read"),
        ("t.parquet", "no", r"t\.parquet cannot be read"),
        ("t.txt", "no", "it is neither a directory nor a table"),
        ("more/t", "no", "it has no seen.parquet, which `score` writes"),
    ],
)
def test_other_tables_are_refused(name: str, content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    given = path if path.suffix else path.parent
    with pytest.raises(MalformedFileError, match=reason):
        read_seen_images(given, CATEGORIES)


@pytest.mark.parametrize(
    "feature",
    [
        '"energy": {"edges": [2, 1], "counts": [1, 1, 1]}',
        '"energy": {"edges": [1], "counts": [1]}',
        '"energy": {"edges": 1}',
        '"energy": {"edges": [], "counts": [1000000000000]}',
        '"temperature": {"edges": [1], "counts": [1, 1]}',
    ],
)
def test_damaged_histograms_are_refused(feature: str, tmp_path: Path) -> None:
    head = '{"images": 3, "accuracy": 1, "confidence": 1, "threshold": null, "categories": [3]'
    (tmp_path / HISTOGRAMS).write_text(f'{head}, "features": {{{feature}}}}}')
    with pytest.raises(MalformedFileError, match=r"histograms\.json is not as expected: "):
        read_histograms(tmp_path)
