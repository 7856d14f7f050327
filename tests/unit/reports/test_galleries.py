"""Sections of pictures: which images they show, and what is said about them."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.pages import Page, decoded
from tests.painting import paint
from tests.reports import make_report

from train_pytorch_model.evaluation.metrics import Evaluation, Outcomes, evaluate, outcomes_of
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.image_classifier.colours import DEFAULT_COLOURS
from train_pytorch_model.quality.twins import TwinRow
from train_pytorch_model.reports.evaluation_values import MAX_CELL_FILES, files_by_cell
from train_pytorch_model.reports.galleries import (
    IN_TABLE,
    MAX_MISTAKES,
    prediction_galleries,
    twins_gallery,
)
from train_pytorch_model.reports.gallery import Card, Fact, Gallery, Heat
from train_pytorch_model.reports.pictures import THUMBNAIL_SIDE, thumbnail
from train_pytorch_model.reports.training_report import render_report


def evaluation_of(evaluated: EvaluatedImages) -> Evaluation:
    assert isinstance(evaluated.outcomes, Outcomes)
    return evaluate(evaluated.outcomes, 2)


def painted(tmp_path: Path, targets: Sequence[int], probabilities: np.ndarray) -> EvaluatedImages:
    """Painted images, such as `a/0.png`, with these predictions."""
    for index, target in enumerate(targets):
        (tmp_path / "ab"[target]).mkdir(exist_ok=True)
        paint("red", index).save(tmp_path / "ab"[target] / f"{index}.png")
    images = open_image_directory(tmp_path, "Dataset")
    outcomes = outcomes_of(images.class_indices, probabilities)
    return EvaluatedImages(images, np.arange(len(targets)), outcomes)


def shown_of(
    tmp_path: Path, targets: Sequence[int], probabilities: np.ndarray
) -> Sequence[Gallery]:
    """The galleries of an evaluation of such images, of which the last one is deleted."""
    evaluated = painted(tmp_path, targets, probabilities)
    evaluated.images.path(len(targets) - 1).unlink()
    return prediction_galleries(
        evaluation_of(evaluated),
        evaluated,
        DEFAULT_COLOURS,
        lambda rows: [None] * len(rows),
        "; see the table",
    )


def test_predictions_are_shown_with_their_pictures(tmp_path: Path) -> None:
    probabilities = np.array([[0.01, 0.99], [0.8, 0.2], [0.9, 0.1], [0.48, 0.52], [0.3, 0.7]])
    galleries = {each.id: each for each in shown_of(tmp_path, [0, 0, 0, 1, 1], probabilities)}
    mistake, uncertain = galleries["mistakes"].cards[0], galleries["uncertain"].cards[0]
    assert galleries["mistakes"].text.startswith("1 of 5 images was misclassified.")
    assert (mistake.facts, mistake.files) == (
        [Fact("true", "a", "1.0%"), Fact("predicted", "b", "99.0%")],
        ["a/0.png"],
    )
    assert mistake.pictures[0].startswith("data:image/")
    assert (uncertain.facts, uncertain.files) == ([Fact("right", "b", "52.0%")], ["b/3.png"])
    assert [card.files for card in galleries["right"].cards] == [["a/2.png"], ["b/4.png"]]
    assert galleries["right"].cards[1].pictures == [""]


def test_the_cells_of_the_matrix_have_names_of_files(tmp_path: Path) -> None:
    probabilities = np.array([[0.1, 0.9]] * 7 + [[0.01, 0.99], [0.2, 0.8], [0.9, 0.1]])
    files = files_by_cell(painted(tmp_path, [0] * 8 + [1, 1], probabilities))
    assert set(files) == {"0,1", "1,1", "1,0"}
    assert (files["0,1"][:2], len(files["0,1"])) == (["a/7.png", "a/0.png"], MAX_CELL_FILES)
    assert (files["1,1"], files["1,0"]) == (["b/8.png"], ["b/9.png"])


def test_galleries_say_what_they_leave_out_or_lack(tmp_path: Path) -> None:
    (mistakes, _, *_rest) = shown_of(
        tmp_path, [0] * MAX_MISTAKES + [1, 1], np.eye(2)[[1] * MAX_MISTAKES + [0, 1]]
    )
    assert (
        f"Shown are the {MAX_MISTAKES} with the highest confidence; see the table." in mistakes.text
    )
    (tmp_path / "right").mkdir()
    (mistakes, *_rest) = shown_of(tmp_path / "right", [0, 1], np.eye(2))
    assert (mistakes.cards, mistakes.text) == ([], "None: every image was classified correctly.")


def test_a_gallery_has_a_grid_of_pictures_and_a_link(tmp_path: Path) -> None:
    paint("red", 1).save(tmp_path / "1.png")
    picture = thumbnail(tmp_path / "1.png")
    cards = [
        Card(
            [picture, picture],
            [Fact("true", "a", "1.0%"), Fact("predicted", "b")],
            ["a/1.png", "a/2.png"],
        ),
        Card([""], [Fact("true", "a")]),
    ]
    gallery = Gallery("pairs", "Pairs", "Look at `mistakes.csv`.", cards)
    page = Page(render_report(make_report(galleries=[gallery])))
    assert [image["alt"] for image in page.all("img")] == ["Image a/1.png", "Image a/2.png"]
    assert "true: a (1.0%) predicted: b a/1.png a/2.png" in page.text
    assert "cannot be shown true: a" in page.text
    assert "Look at mistakes.csv ." in page.text
    assert "#pairs" in [link["href"] for link in page.all("a")]


def test_names_may_be_broken_between_words_only() -> None:
    card = Card([""], [Fact("true", "golden_retriever")], ["new & old/IMG_2023-edited.final.jpg"])
    page = render_report(make_report(galleries=[Gallery("pairs", "Pairs", "", [card])]))
    assert "<bdi>golden_<wbr>retriever</bdi>" in page
    assert "<bdi>new &amp;<wbr> old/<wbr>IMG_<wbr>2023-<wbr>edited.final.jpg</bdi>" in page


@pytest.mark.parametrize("size", [(32, 32), (1000, 600), (7, 3000)])
def test_a_thumbnail_is_small_and_keeps_the_aspect_ratio(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    paint("green", 1, size).save(tmp_path / "image.png")
    shown = decoded(thumbnail(tmp_path / "image.png"))
    assert max(shown.size) == min(max(size), THUMBNAIL_SIDE)
    assert shown.width / shown.height == pytest.approx(size[0] / size[1], rel=0.15, abs=0.005)
    red, green, blue = np.asarray(shown).reshape(-1, 3).mean(axis=0)
    assert green > max(red, blue)


def test_heat_lies_over_mistakes_and_uncertain_images(tmp_path: Path) -> None:
    evaluated = painted(tmp_path, [0, 0, 1], np.array([[0.1, 0.9], [0.51, 0.49], [0.0, 1.0]]))
    heat = Heat("data:image/png;base64,", (0.25, 0, 0.5, 1))
    heats = {0: heat, 1: heat, 2: None}
    shown = prediction_galleries(
        evaluation_of(evaluated),
        evaluated,
        DEFAULT_COLOURS,
        lambda chosen: [heats[index] for index in chosen.tolist()],
    )
    assert "Pink is what" in shown[0].text
    assert [[card.heat for card in gallery.cards] for gallery in shown] == [
        [heat],
        [heat, None],
        [None, None],
    ]
    page = Page(render_report(make_report(galleries=shown)))
    assert [image["style"] for image in page.all("img") if image.get("class") == "heat"] == [
        "left:25.0%;top:0.0%;width:50.0%;height:100.0%"
    ] * 2


def test_an_image_is_shown_once(tmp_path: Path) -> None:
    evaluated = painted(tmp_path, [0, 0, 1, 1], np.array([[0.1, 0.9], [0.4, 0.6], [0, 1], [0, 1]]))
    galleries = prediction_galleries(
        evaluation_of(evaluated),
        evaluated,
        DEFAULT_COLOURS,
        lambda rows: [None] * len(rows),
        shown_before={"a/0.png"},
    )
    mistakes, uncertain, _ = galleries
    assert mistakes.text.startswith("2 of 4 images were misclassified. 1 of them is shown above.")
    assert [card.files for card in mistakes.cards] == [["a/1.png"]]
    assert [card.files for card in uncertain.cards] == [["b/2.png"], ["b/3.png"]]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (("Training dataset", "dog"), "In 1 pair the categories differ: `review` shows both"),
        (("Test dataset", "cat"), "1 pair is in two parts, training and test: what training has"),
        (("Training dataset", "cat"), "1 pair is in one part and category: the image counts twice"),
    ],
)
def test_what_to_do_about_twins_is_said_of_each_kind(
    tmp_path: Path, other: tuple[str, str], text: str
) -> None:
    (tmp_path / "cat").mkdir()
    paint("red", 1).save(tmp_path / "cat/1.png")
    images = open_image_directory(tmp_path, "Training dataset")
    port, category = other
    row = TwinRow("Training dataset", "cat/1.png", "cat", port, "cat/1.png", category, "similar", 1)
    data_sets = (images, replace(images, port="Test dataset"))
    (gallery,) = twins_gallery([row], data_sets, DEFAULT_COLOURS)
    assert gallery.text.startswith("1 pair of images looks alike; `twins.csv` lists them.")
    assert text in gallery.text
    assert gallery.text.count(" pair ") == 2
    assert [fact.name for fact in gallery.cards[0].facts] == ["cat", category]


def test_a_review_is_not_proposed_for_lists_of_categories(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    paint("red", 1).save(tmp_path / "cat/1.png")
    images = open_image_directory(tmp_path, "Training dataset")
    port = images.port
    row = TwinRow(port, "cat/1.png", "cat", port, "cat/1.png", "cat;dog", "similar", 1)
    (gallery,) = twins_gallery([row], [images], DEFAULT_COLOURS, IN_TABLE)
    assert "the categories differ: correct the table of the images" in gallery.text
    assert "review" not in gallery.text


def test_a_thumbnail_has_no_metadata(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a secret"
    paint("red", 1).save(tmp_path / "1.jpg", comment="a secret" * 1000, exif=exif)
    uri = thumbnail(tmp_path / "1.jpg")
    assert b"secret" not in base64.b64decode(uri.partition(",")[2])
    assert len(uri) < 3000


def test_a_file_that_is_gone_has_no_thumbnail(tmp_path: Path) -> None:
    assert thumbnail(tmp_path / "gone.png") == ""
