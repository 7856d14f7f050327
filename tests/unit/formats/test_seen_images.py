"""What a model saw in images: tables that `score` and a served model write, and their faults."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from train_pytorch_model.formats import seen_images, seen_tables
from train_pytorch_model.formats.histograms import HISTOGRAMS, read_histograms
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.seen_images import (
    FEATURES,
    SEEN_IMAGES,
    UNKNOWN,
    SeenImages,
    SeenReader,
    seen_table,
)

CATEGORIES = ("ants", "bees")
FALLS = (
    '{"accuracy": [0.5], "confidence": [0.4], "rises": [2], "energy": -1, "deviation": 1,'
    ' "excess": 0.4, "excess_deviation": 0.6}'
)


def read_seen(path: Path, categories: Sequence[str] = CATEGORIES) -> SeenImages:
    reader = SeenReader(categories)
    reader.read(path)
    return reader.seen


def names_of(seen: SeenImages) -> list[str]:
    return [image.name for image in seen.unlike]


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
    seen = read_seen(tmp_path)
    assert names_of(seen) == ["x/1.png", "caf\\udce9.png"]
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
    seen = read_seen(path)
    assert names_of(seen) == ["b", "a"]
    assert seen.predicted.tolist() == [0, UNKNOWN]
    assert seen.confidences.tolist() == [0.9, 0.7]
    assert seen.features["energy"].tolist() == [-3.0, 1.0]
    assert np.isnan(seen.features["aspect_ratio"]).all()


def test_categories_and_names_that_are_numbers_are_read_as_they_were_written(
    tmp_path: Path,
) -> None:
    head = "name,Scored Labels,energy,Scored Probabilities_01"
    (tmp_path / "answers.csv").write_text(f"{head}\n007,01,-1,0.9\nno image,,,\n")
    seen = read_seen(tmp_path / "answers.csv", ("01", "02"))
    assert names_of(seen) == ["007"]
    assert seen.predicted.tolist() == [0]


def test_the_answer_of_mlflows_server_is_read(tmp_path: Path) -> None:
    row = '{"Scored Labels": "bees", "Scored Probabilities_bees": 0.75, "energy": -2}'
    (tmp_path / "answer.json").write_text(f'{{"predictions": [{row}]}}')
    seen = read_seen(tmp_path / "answer.json")
    assert seen.predicted.tolist() == [1]
    assert seen.confidences.tolist() == [0.75]


def test_what_is_no_number_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text(
        "label,energy,Scored Probabilities_ants,Scored Probabilities_bees\n"
        "ants,low,high,0.2\nbees,-1,0.25,0.75\n"
    )
    seen = read_seen(tmp_path / "answers.csv")
    assert np.isnan(seen.confidences).tolist() == [True, False]
    assert np.isnan(seen.features["energy"]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", "label,probability\nants,1\n", "it has no column 'energy': `score` writes seen"),
        ("t.csv", "energy\n1\n", "it has no column 'label'"),
        ("t.csv", "label,energy\nants,1\n", "it has no column with probabilities."),
        ("t.csv", "label,energy,probability,label\nants,1,1,ants\n", "it has two columns 'label'"),
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
        read_seen(given)


def test_a_table_is_read_in_pieces_of_which_the_most_unlike_images_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_tables, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(seen_tables, "BLOCK_BYTES", 512)
    monkeypatch.setattr(seen_images, "MAX_COMPARED", 20)
    monkeypatch.setattr(seen_images, "MAX_UNLIKE", 3)
    count = 100
    table = pd.DataFrame(
        {
            "label": ["ants", "bees"] * (count // 2),
            "energy": np.arange(count) % 50,
            "probability": np.linspace(0, 1, count),
        }
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet", row_group_size=30)
    for suffix in ("csv", "parquet"):
        seen = read_seen(tmp_path / f"t.{suffix}")
        assert seen.images == count
        assert [image.name for image in seen.unlike] == ["49", "99", "48"]
        assert seen.features["energy"].tolist() == [8 * row % 50 for row in range(13)]
    reader = SeenReader(CATEGORIES)
    for _ in range(3):
        reader.add(table)
    assert reader.seen.images == 300
    assert len(reader.seen.predicted) <= 20


def test_a_small_file_of_gigabytes_of_text_takes_little_memory(tmp_path: Path) -> None:
    count = 200_000
    codes = pa.array(np.zeros(count, np.int32))
    columns = {
        "label": pa.DictionaryArray.from_arrays(codes, ["ants"]),
        "file_name": pa.DictionaryArray.from_arrays(codes, ["x" * 100_000]),  # 20 GB
        "energy": np.zeros(count),
        "confidence": np.ones(count),
    }
    table = pa.table(columns)
    with pq.ParquetWriter(tmp_path / "t.parquet", table.schema, store_schema=False) as writer:
        writer.write_table(table)
    before = pa.total_allocated_bytes()
    seen = read_seen(tmp_path / "t.parquet")
    assert seen.images == count
    assert len(seen.unlike[0].name) == seen_images.MAX_NAME
    assert pa.default_memory_pool().max_memory() - before < 1 << 30


def test_a_row_longer_than_a_piece_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_tables, "BLOCK_BYTES", 512)
    head = "name,label,energy,probability\n"
    (tmp_path / "t.csv").write_text(f"{head}{'x' * 2000},ants,1,1\na,ants,1,1\n")
    with pytest.raises(MalformedFileError, match=r"t\.csv cannot be read: "):
        read_seen(tmp_path / "t.csv")


def test_scores_of_another_model_are_refused() -> None:
    table = pd.DataFrame({"label": ["unknown", "x" * 80], "energy": [1, 1], "probability": [1, 1]})
    with pytest.raises(MalformedFileError, match=r"^'x{60}' is no category of this model: these"):
        SeenReader(CATEGORIES).add(table)
    table["label"] = [["ants"], ["bees"]]
    with pytest.raises(MalformedFileError, match="'label' should hold the name of a category"):
        SeenReader(CATEGORIES).add(table)


def test_lists_of_labels_are_refused(tmp_path: Path) -> None:
    table = pd.DataFrame({"label": [["ants"]], "energy": [1.0], "probability": [1.0]})
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(MalformedFileError, match="its column 'label' holds list"):
        read_seen(tmp_path / "t.parquet")


def test_histograms_of_earlier_versions_have_no_falls(tmp_path: Path) -> None:
    head = '{"images": 3, "accuracy": 1, "confidence": 1, "categories": [3], "features": {}'
    (tmp_path / HISTOGRAMS).write_text(f'{head}, "threshold": null}}')
    assert read_histograms(tmp_path).falls is None
    (tmp_path / HISTOGRAMS).write_text(f'{head}, "falls": {FALLS}}}')
    falls = read_histograms(tmp_path).falls
    assert falls is not None
    assert falls.rises == [2]


@pytest.mark.parametrize(
    "feature",
    [
        '"energy": {"edges": [2, 1], "counts": [1, 1, 1]}',
        '"energy": {"edges": [1], "counts": [1]}',
        '"energy": {"edges": 1}',
        '"energy": {"edges": [], "counts": [1000000000000]}',
        '"temperature": {"edges": [1], "counts": [1, 1]}',
        '}, "categories": [], "more": {',
        '}, "images": 1000000000000000, "more": {',
        '}, "falls": {"accuracy": 1',
        f'}}, "falls": {FALLS.replace("0.5", "1.5")}, "more": {{',
        f'}}, "falls": {FALLS.replace("[0.5]", "[]")}, "more": {{',
    ],
)
def test_damaged_histograms_are_refused(feature: str, tmp_path: Path) -> None:
    head = '{"images": 3, "accuracy": 1, "confidence": 1, "categories": [3]'
    (tmp_path / HISTOGRAMS).write_text(f'{head}, "features": {{{feature}}}}}')
    with pytest.raises(MalformedFileError, match=r"histograms\.json is not as expected: "):
        read_histograms(tmp_path)
