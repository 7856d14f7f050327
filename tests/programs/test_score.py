"""`score`, and the same predictions of the trained directory through MLflow."""

import csv
import io
import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from PIL import Image

from tests.image_directories import write_image_directory
from tests.painting import paint_folders
from tests.programs.conftest import Trained
from tests.programs.program import assert_refused, run_process, score

PROBABILITIES = [
    "Scored Probabilities_blue",
    "Scored Probabilities_green",
    "Scored Probabilities_red",
]

# Run where our package cannot be imported: the directory contains the code it needs.
PREDICT = """
import base64, sys, warnings
from pathlib import Path

warnings.simplefilter("ignore")
sys.modules["train_pytorch_model"] = None
import mlflow
import pandas as pd

model, images, output = sys.argv[1:]
scores = pd.read_csv(Path(output) / "scores.csv")
contents = [(Path(images) / name).read_bytes() for name in scores["file_name"]]
files = [base64.b64encode(content).decode() for content in contents]
predicted = mlflow.pyfunc.load_model(model).predict(pd.DataFrame({"image": files}))
predicted.to_json(Path(output) / "predicted.json", double_precision=15)
"""


def test_labelled_images_are_scored_and_the_accuracy_is_printed(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    output = tmp_path / "scores"
    ended = score(trained.output, folders / "validation", output)
    assert (ended.status, ended.stderr) == (0, "")
    scores = pd.read_csv(output / "scores.csv")
    assert list(scores) == ["file_name", "category", "id", *PROBABILITIES, "Scored Labels"]
    names = [
        f"{category}/{index}.png"
        for category in ("blue", "green", "red")
        for index in (100, 101, 102)
    ]
    assert list(scores["file_name"]) == names
    assert list(scores["category"]) == [name.partition("/")[0] for name in names]
    correct = int((scores["category"] == scores["Scored Labels"]).sum())
    assert f"Accuracy {correct / 9:.1%}: {correct} of 9 images\n" in ended.stdout
    assert ended.stdout.endswith(f"The scores of 9 images are in {output}/scores.csv\n")


def test_probabilities_sum_to_one_and_the_label_is_the_most_probable(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    score(trained.output, folders / "validation", tmp_path / "scores")
    scores = pd.read_parquet(tmp_path / "scores" / "_data.parquet")
    assert scores[PROBABILITIES].sum(axis=1).to_list() == pytest.approx([1.0] * 9, abs=1e-12)
    most_probable = scores[PROBABILITIES].idxmax(axis=1).str.removeprefix("Scored Probabilities_")
    assert most_probable.to_list() == scores["Scored Labels"].to_list()
    assert scores[PROBABILITIES].nunique().min() > 1


def test_a_scored_dataset_is_a_data_frame_directory_with_the_same_rows(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    output = tmp_path / "scores"
    score(trained.output, folders / "validation", output)
    assert {path.name for path in output.iterdir()} == {
        *("_meta.yaml", "_data.parquet", "_samples.json", "schema", "scores.csv", "seen.parquet")
    }
    assert yaml.safe_load((output / "_meta.yaml").read_text())["type"] == "DataFrameDirectory"
    table = pd.read_parquet(output / "_data.parquet")
    pd.testing.assert_frame_equal(
        table,
        pd.read_csv(output / "scores.csv").drop(columns="file_name"),
        check_dtype=False,
        rtol=0,
        atol=5e-7,  # the CSV has six digits
    )


def test_unlabelled_images_are_scored_without_an_accuracy(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for name in ("red/100.png", "blue/101.png"):
        shutil.copyfile(folders / "validation" / name, flat / name.replace("/", "_"))
    ended = score(trained.output, flat, tmp_path / "scores")
    assert (ended.status, ended.stderr) == (0, "")
    assert "Accuracy" not in ended.stdout
    scores = pd.read_csv(tmp_path / "scores" / "scores.csv")
    assert list(scores) == ["file_name", "id", *PROBABILITIES, "Scored Labels"]
    assert list(scores["file_name"]) == ["blue_101.png", "red_100.png"]


def test_embeddings_and_what_to_label_next_are_written_beside_the_scores(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in sorted((folders / "validation").glob("*/*.png")):
        shutil.copyfile(path, flat / f"{path.parent.name}_{path.name}")
    options = (
        "--embeddings",
        "float16",
        "--rank-by",
        "uncertainty",
        "--num-to-label",
        "4",
    )
    ended = score(trained.output, flat, tmp_path / "scores", *options)
    assert (ended.status, ended.stderr) == (0, "")
    scores = pd.read_csv(tmp_path / "scores" / "scores.csv")
    embeddings = pd.read_parquet(tmp_path / "scores" / "embeddings.parquet")
    assert list(embeddings["file_name"]) == list(scores["file_name"])
    assert {(row.shape, row.dtype.name) for row in embeddings["embedding"]} == {((96,), "float16")}
    to_label = pd.read_csv(tmp_path / "scores" / "to_label.csv")
    two = scores[PROBABILITIES].apply(
        lambda row: row.nlargest(2).to_list(), axis=1, result_type="expand"
    )
    margins = (two[0] - two[1]).set_axis(scores["file_name"])
    assert to_label["file_name"][0] == margins.idxmin()
    assert to_label["file_name"].nunique() == len(to_label) == 4
    assert to_label["margin"].to_list() == pytest.approx(
        margins[to_label["file_name"]].to_list(), abs=2e-6
    )


def test_labelled_images_are_not_proposed_for_labelling(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    assert_refused(
        score(
            trained.output, folders / "validation", tmp_path / "scores", "--rank-by", "uncertainty"
        ),
        2,
        "ParameterError: --rank-by proposes images to label, but every image of",
    )
    assert not (tmp_path / "scores").exists()


def test_unreadable_images_are_left_out_listed_and_warned_about(
    trained: Trained, tmp_path: Path
) -> None:
    images = paint_folders(tmp_path / "images", 3)
    (images / "blue" / "0.png").write_bytes(b"not an image")
    whole = (images / "red" / "1.png").read_bytes()
    (images / "red" / "1.png").write_bytes(whole[: len(whole) // 2])  # its header is good
    ended = score(trained.output, images, tmp_path / "scores", "--quiet")
    assert (ended.status, ended.stdout) == (0, "")
    assert ended.stderr.startswith("Warning: 2 unreadable images are left out:")
    with (tmp_path / "scores" / "bad_images.csv").open() as file:
        left_out = [row["file_name"] for row in csv.DictReader(file)]
    assert left_out == ["blue/0.png", "red/1.png"]
    scores = pd.read_csv(tmp_path / "scores" / "scores.csv")
    assert list(scores["file_name"]) == [
        *(
            "blue/1.png",
            "blue/2.png",
            "green/0.png",
            "green/1.png",
            "green/2.png",
            "red/0.png",
            "red/2.png",
        )
    ]
    assert list(scores["id"]) == [1, 2, 3, 4, 5, 6, 8]


def test_top_k_limits_the_csv_to_the_most_probable_categories(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    score(trained.output, folders / "validation", tmp_path / "all")
    ended = score(trained.output, folders / "validation", tmp_path / "top", "--top-k", "2")
    assert (ended.status, ended.stderr) == (0, "")
    probabilities = pd.read_csv(tmp_path / "all" / "scores.csv")[PROBABILITIES]
    top = pd.read_csv(tmp_path / "top" / "scores.csv")
    assert list(top)[3:] == [
        *("Top 1", "Top 1 Probability", "Top 2", "Top 2 Probability", "Scored Labels")
    ]
    for index, row in probabilities.iterrows():
        first, second = row.nlargest(2).items()
        names = [str(name).removeprefix("Scored Probabilities_") for name, _ in (first, second)]
        assert top.loc[index, ["Top 1", "Top 2", "Scored Labels"]].to_list() == [*names, names[0]]
        assert top.loc[index, ["Top 1 Probability", "Top 2 Probability"]].to_list() == [
            first[1],
            second[1],
        ]
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "top" / "_data.parquet"),
        pd.read_parquet(tmp_path / "all" / "_data.parquet"),
    )


@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize(
    ("option", "name"), [("--top-k", "Top k"), ("--num-to-label", "Num to label")]
)
def test_a_number_below_one_is_refused(
    trained: Trained, tmp_path: Path, option: str, name: str, value: str
) -> None:
    assert_refused(
        score(trained.output, tmp_path / "missing", tmp_path / "scores", option, value),
        2,
        f'ParameterError: Parameter "{name}" value should be greater than 0: {option} is {value}.',
    )


def test_a_column_of_mixed_types_is_refused_and_leaves_no_output(
    trained: Trained, tmp_path: Path
) -> None:
    images = tmp_path / "images"
    pixels = Image.new("RGB", (32, 32))
    names = [
        f"{index}.png" for index in range(70)
    ]  # more than one batch: the first one sets the type
    write_image_directory(images, ((name, _png(pixels), None) for name in names), ())
    rows = [json.loads(line) for line in (images / "images.lst").read_text().splitlines()]
    rows[-1]["id"] = "the last"
    (images / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_refused(
        score(trained.output, images, tmp_path / "scores"),
        3,
        f"InvalidDatasetError: Dataset \"{images}\" is not valid, reason: column 'id' starts as"
        " int64 but has"
        " 'the last' later.",
    )
    assert not (tmp_path / "scores").exists()


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_mlflow_predicts_the_same_scores_without_our_package(
    trained: Trained, folders: Path, tmp_path: Path
) -> None:
    images, output = folders / "validation", tmp_path / "scores"
    score(trained.output, images, output)
    ended = run_process(sys.executable, "-c", PREDICT, trained.output, images, output)
    assert ended.status == 0, ended.stderr
    scores = pd.read_csv(output / "scores.csv")
    predicted = pd.read_json(output / "predicted.json")
    assert list(predicted) == [*PROBABILITIES, "Scored Labels", "error"]
    assert predicted.pop("error").isna().all()
    pd.testing.assert_frame_equal(predicted, scores[list(predicted)], rtol=0, atol=1e-6)


def test_an_untrained_model_is_refused(untrained: Path, folders: Path, tmp_path: Path) -> None:
    assert_refused(
        score(untrained, folders / "validation", tmp_path / "scores"),
        3,
        f'InvalidModelDirectoryError: ModelDirectory "Trained model {untrained}" is invalid.'
        f" Reason: it is"
        " not trained: model_spec.yaml names no label_map_file.",
        "Train it first, with `train`.",
    )
    assert not (tmp_path / "scores").exists()


def test_a_missing_dataset_is_refused(trained: Trained, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert_refused(
        score(trained.output, missing, tmp_path / "scores"),
        3,
        f'InvalidDatasetError: Dataset "{missing}" is not valid, reason: there is no such'
        f" directory.",
    )


def test_scores_are_never_overwritten(trained: Trained, folders: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(
        score(trained.output, folders / "validation", tmp_path),
        2,
        f"OutputDirectoryError: --scored-dataset {tmp_path} is not empty: it holds notes.txt.",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
