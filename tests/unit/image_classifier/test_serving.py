"""A served model's answers, row by row."""

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow.exceptions import MlflowException
from PIL import Image
from tests.painting import encode, paint

from train_pytorch_model.image_classifier import serving
from train_pytorch_model.image_classifier.classifier import BATCH_SIZE, ImageClassifier
from train_pytorch_model.image_classifier.predictions import known_json
from train_pytorch_model.image_classifier.serving import ServedClassifier
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing

PHOTO = encode(paint("red", 200, (50, 40)), "JPEG")
BASE64 = base64.b64encode(PHOTO).decode()


class Classifier(ImageClassifier):
    """A classifier that needs no network, and remembers how many images it was given at once."""

    spec = ClassifierSpec("resnet18", False, ("a", "b"), Framing(8, 8, 1.0), (0.5,) * 3, (0.5,) * 3)

    def __init__(self) -> None:
        self.batches: list[int] = []

    def predict(self, pixels: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        assert pixels.shape[1:] == (8, 8, 3)
        self.batches.append(len(pixels))
        red = pixels[..., 0].double().mean(dim=(1, 2)) / 255
        return torch.stack((red, 1 - red), dim=1).numpy(), red.numpy()


def predict(*images: object, **columns: list[str]) -> pd.DataFrame:
    table = pd.DataFrame({"image": pd.Series(images, dtype=object), **columns})
    answer: pd.DataFrame = ServedClassifier(Classifier(), Path()).predict(table)
    return answer


@pytest.mark.parametrize(
    "image",
    [
        BASE64,
        base64.encodebytes(PHOTO).decode(),
        f"  {BASE64}\r\n",
        f"data:image/jpeg;base64,{BASE64}",
        base64.urlsafe_b64encode(PHOTO).decode(),
        BASE64.rstrip("="),
        PHOTO,
    ],
    ids=["plain", "line breaks", "blanks around", "data URL", "URL-safe", "no padding", "bytes"],
)
def test_an_image_is_read_as_people_send_it(image: object) -> None:
    pd.testing.assert_frame_equal(predict(image), predict(BASE64))
    assert predict(image)["error"].isna().all()


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("no base64!", "not a base64-encoded image file"),
        ("data:text/plain,hello", "a data URL that is not base64-encoded"),
        ("aGVsbG8=", "not an image of a known format"),
        (BASE64[: len(BASE64) // 2], "Truncated"),
        (None, "there is no image: the value is null"),
        (float("nan"), "there is no image: the value is null"),
        (3.5, "float"),
        ("", "the file is empty"),
    ],
)
def test_what_cannot_be_read_has_an_error_and_neither_label_nor_probabilities(
    image: object, reason: str
) -> None:
    scored = predict(BASE64, image, BASE64)
    assert list(scored["error"].isna()) == [True, False, True]
    assert reason in scored["error"][1]
    for column in ("Scored Labels", "Scored Probabilities_a", "Scored Probabilities_b"):
        assert [value is None for value in scored[column]] == [False, True, False]


def test_rows_keep_their_names() -> None:
    scored = predict(BASE64, "no base64!", name=["one.jpg", "two.jpg"])
    assert scored.columns[0] == "name"
    assert list(scored["name"]) == ["one.jpg", "two.jpg"]
    assert "name" not in predict(BASE64)


@pytest.mark.parametrize(
    ("names", "answered"),
    [
        (["a", None], ["a", None]),
        ([5, None], [5, None]),
        ([5.5, None], [5.5, None]),
        ([None, None], [None, None]),
        ([5, 6], [5, 6]),
        (["a", np.inf], ["a", "inf"]),
    ],
)
def test_an_answer_is_json_with_any_names(names: list[Any], answered: list[Any]) -> None:
    table = pd.DataFrame({"image": [BASE64] * 2, "name": names})
    answer = ServedClassifier(Classifier(), Path()).predict(table).to_dict(orient="records")
    rows = json.loads(json.dumps(answer, allow_nan=False))  # as MLflow's server writes it
    assert json.dumps([row["name"] for row in rows]) == json.dumps(answered)


def test_images_are_decoded_in_batches_and_answered_in_order() -> None:
    classifier = Classifier()
    black, white = (
        encode(paint("red", 200, (8, 8)).point(lambda _, v=v: v), "PNG") for v in (0, 255)
    )
    images = [black, white] * BATCH_SIZE
    images[5] = b"damaged"
    table = pd.DataFrame({"image": pd.Series(images, dtype=object)})
    scored = ServedClassifier(classifier, Path()).predict(table)
    assert classifier.batches == [BATCH_SIZE - 1, BATCH_SIZE]
    assert list(scored["Scored Labels"]) == [
        "b",
        "a",
        "b",
        "a",
        "b",
        None,
        *("b", "a") * (BATCH_SIZE - 3),
    ]


def test_an_empty_table_has_an_empty_answer() -> None:
    assert len(predict()) == 0


def test_a_request_in_which_nothing_can_be_read_is_refused() -> None:
    with pytest.raises(
        MlflowException, match=r"None of the images can be read \(2 given\)"
    ) as caught:
        predict("no base64!", None)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"  # status 400


def test_rows_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_ROWS", 2)
    with pytest.raises(MlflowException, match="3 images at once are more than 2"):
        predict(BASE64, BASE64, BASE64)
    monkeypatch.setattr(serving, "MAX_FILE_BYTES", 100)
    scored = predict(BASE64, encode(paint("red", 1, (1, 1)), "PNG"))
    assert "is larger than 100" in scored["error"][0]


def test_images_unlike_the_known_ones_are_unknown_if_asked(tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text(known_json(np.linspace(0, 1, 1001)), encoding="ascii")
    greys = (0, 100, 200, 255)
    images = [encode(paint("red", 200, (8, 8)).point(lambda _, v=v: v), "PNG") for v in greys]
    table = pd.DataFrame({"image": pd.Series([*images, b"damaged"], dtype=object)})
    served = ServedClassifier(Classifier(), tmp_path)
    plain = served.predict(table)
    assert list(plain["Scored Labels"]) == ["b", "b", "a", "a", None]
    asked = served.predict(table, {"known_fraction": 0.5})
    assert list(asked["Scored Labels"]) == ["b", "b", "unknown", "unknown", None]
    pd.testing.assert_frame_equal(
        asked.drop(columns="Scored Labels"), plain.drop(columns="Scored Labels")
    )
    with pytest.raises(MlflowException, match="above 0 and at most 1"):
        served.predict(table, {"known_fraction": 2})
    with pytest.raises(MlflowException, match=r"no known\.json"):
        ServedClassifier(Classifier(), tmp_path / "x").predict(table, {"known_fraction": 0.5})


def test_what_was_seen_is_in_the_answer_if_asked(tmp_path: Path) -> None:
    white = encode(Image.new("RGB", (40, 20), "white"), "PNG")
    table = pd.DataFrame({"image": pd.Series([white, b"damaged"], dtype=object)})
    served = ServedClassifier(Classifier(), tmp_path)
    plain = served.predict(table)
    asked = served.predict(table, {"watch": True})
    seen = asked.columns.difference(plain.columns)
    assert set(seen) == {"energy", "brightness", "aspect_ratio", "pixels"}
    assert asked[["brightness", "aspect_ratio", "pixels"]].iloc[0].tolist() == [1, 2, 800]
    assert asked[seen].iloc[1].tolist() == [None] * 4
    pd.testing.assert_frame_equal(asked.drop(columns=seen), plain)


def test_a_category_called_unknown_is_never_mixed_up_with_that_answer(tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text(known_json(np.linspace(0, 1, 1001)), encoding="ascii")
    classifier = Classifier()
    classifier.spec = dataclasses.replace(classifier.spec, categories=("a", "unknown"))
    served = ServedClassifier(classifier, tmp_path)
    table = pd.DataFrame({"image": [BASE64]})
    assert len(served.predict(table)) == 1
    with pytest.raises(MlflowException, match="has a category called `unknown`"):
        served.predict(table, {"known_fraction": 0.5})
