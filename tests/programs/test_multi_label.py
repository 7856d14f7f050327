"""Images with any number of categories, from AutoML's list to predictions."""

import base64
import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from sklearn.metrics import average_precision_score

from tests.trainings import TINY
from train_pytorch_model import Model, fit
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.image_classifier.classifier import best_device
from train_pytorch_model.inputs.scoring import open_evaluation_inputs, open_scoring_inputs
from train_pytorch_model.stories.score import ScoreOptions, score

COLOURS = {"red": (0, 220), "green": (1, 220), "blue": (2, 220)}
URL = "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/d/paths/fridge/"


def paint(index: int) -> tuple[Image.Image, list[str]]:
    """An image of noise with a bright channel for each of its categories, of which it may have
    none.
    """
    random = np.random.default_rng(index)
    labels = [name for name in COLOURS if random.random() < 0.5]
    pixels = random.integers(0, 60, (32, 32, 3), dtype=np.uint8)
    for name in labels:
        channel, brightness = COLOURS[name]
        pixels[:, :, channel] = brightness
    return Image.fromarray(pixels), labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with a list as AutoML's documentation shows it."""
    root = tmp_path_factory.mktemp("lists") / "fridge"
    root.mkdir()
    lines = []
    for index in range(90):
        image, labels = paint(index)
        image.save(root / f"{index}.png")
        row = {
            "image_url": f"{URL}{index}.png",
            "image_details": {"format": "png", "width": "32px", "height": "32px"},
            "label": labels,
        }
        lines.append(json.dumps(row))
    (root / "annotations.jsonl").write_text("\n".join(lines))
    return root


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return fit(
        folder,
        architecture=TINY,
        from_scratch=True,
        image_size=32,
        epochs=2,
        learning_rate=0.01,
        group_by="none",
        quiet=True,
    )


def test_the_model_answers_lists(folder: Path, model: Model) -> None:
    table = model.predict([folder / "0.png", folder / "1.png", b"none"])
    assert all(isinstance(label, list) for label in table["label"][:2])
    assert table["label"][2] is None
    probabilities = table.filter(like="Scored Probabilities_").to_numpy()[:2]
    assert ((probabilities > 0) & (probabilities < 1)).all()
    assert model.evaluation is not None
    assert model.evaluation.metrics["multi_label"] is True
    assert model.evaluation.metrics["images"] == 18


def test_the_directory_has_thresholds_and_is_none_of_the_designers(model: Model) -> None:
    spec = yaml.safe_load((model.root / "model_spec.yaml").read_text())
    assert len(spec["thresholds"]) == 3
    assert spec["task_type"] == "MultiLabelClassification"
    # The designer imports this module, which it does not have.
    assert spec["flavor_extras"]["module"] == "train_pytorch_model.multi_label"
    lines = (model.root / "metrics.jsonl").read_text().splitlines()
    history = [json.loads(line) for line in lines]
    assert all(0 <= record["Mean average precision"] <= 1 for record in history)
    assert not (model.root / "known.json").exists()
    page = (model.root / "report.html").read_text()
    for title in ("Categories and thresholds", "Precision by recall", "Categories together"):
        assert title in page


def test_the_card_counts_the_images_that_its_accuracy_is_about(model: Model) -> None:
    with (model.root / "split.csv").open(newline="") as file:
        validation = [row for row in csv.DictReader(file) if row["part"] == "validation"]
    num_labelled = sum(bool(row["category"]) for row in validation)
    assert 0 < num_labelled < len(validation)
    card = (model.root / "model_card.md").read_text()
    assert f"of {num_labelled} images |" in card


def test_the_parts_have_their_share_of_each_category(model: Model) -> None:
    with (model.root / "split.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name in COLOURS:
        held_out = [name in row["category"] for row in rows if row["part"] == "test"]
        fraction = np.mean([name in row["category"] for row in rows])
        assert abs(np.mean(held_out) - fraction) <= 1.5 / len(held_out)


def test_scores_give_scikit_learns_numbers(folder: Path, model: Model, tmp_path: Path) -> None:
    world = World(0, 1, 0, 1, best_device())
    score(open_scoring_inputs(model.root, folder), tmp_path / "scores", ScoreOptions(), world)
    scores = pd.read_csv(tmp_path / "scores" / "scores.csv", keep_default_na=False)
    probabilities = scores.filter(like="Scored Probabilities_").to_numpy()
    truth = [paint(int(name.removesuffix(".png")))[1] for name in scores["file_name"]]
    targets = np.array([[name in labels for name in model.categories] for labels in truth])
    found = model.evaluate(folder / "annotations.jsonl").metrics
    expected = average_precision_score(targets, probabilities, average="macro")
    assert found["mean_average_precision"] == pytest.approx(expected, abs=1e-4)
    thresholds = yaml.safe_load((model.root / "model_spec.yaml").read_text())["thresholds"]
    for row, label in zip(probabilities, scores["Scored Labels"], strict=True):
        answered = [name for name in model.categories if name in label.split("; ")]
        clear = np.abs(row - thresholds) > 1e-5  # of what is rounded in the table
        for name, probability, threshold, is_clear in zip(
            model.categories, row, thresholds, clear, strict=True
        ):
            assert not is_clear or (name in answered) == (probability >= threshold)


def test_a_served_model_answers_lists(folder: Path, model: Model) -> None:
    import mlflow

    served = mlflow.pyfunc.load_model(str(model.root))
    image = base64.b64encode((folder / "0.png").read_bytes()).decode()
    (label,) = served.predict(pd.DataFrame({"image": [image]}))["Scored Labels"]
    assert label == model.predict(folder / "0.png")["label"][0]
    outputs = {column.name: column.type for column in served.metadata.get_output_schema()}
    assert str(outputs["Scored Labels"]) == "Array(string)"


def test_single_labels_and_what_compares_two_categories_are_refused(
    folder: Path, model: Model, tmp_path: Path
) -> None:
    for name in ("red", "blue"):
        (tmp_path / "single" / name).mkdir(parents=True)
        paint(0)[0].save(tmp_path / "single" / name / "1.png")
    with pytest.raises(InvalidDatasetError, match="each of its images has one category"):
        open_evaluation_inputs(model.root, tmp_path / "single")
    inputs = open_scoring_inputs(model.root, folder)
    world = World(0, 1, 0, 1, best_device())
    with pytest.raises(ParameterError, match="looks for images between two categories"):
        score(inputs, tmp_path / "scores", ScoreOptions(num_to_label=3), world)
