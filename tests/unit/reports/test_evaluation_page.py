"""The page of an evaluation: readable, bounded, and safe with names of any kind."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.pages import HOSTILE, Page, decoded
from tests.painting import paint

from train_pytorch_model.evaluation.metrics import evaluate, outcomes_of
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.reports.confusion_view import (
    HIT_COLOUR,
    MAX_MAP_CELLS,
    MAX_MAP_SIDE,
    MISTAKE_COLOUR,
)
from train_pytorch_model.reports.evaluation_page import EvaluationReport, render_evaluation
from train_pytorch_model.reports.evaluation_values import MAX_PAIRS, MAX_ROWS
from train_pytorch_model.reports.gallery import Card, Fact, Gallery
from train_pytorch_model.reports.page import MAX_NAME
from train_pytorch_model.reports.pictures import thumbnail


def page_of(
    targets: Sequence[int],
    probabilities: np.ndarray,
    categories: Sequence[str],
    cards: Sequence[Card] = (),
    num_unreadable: int = 0,
    dataset_name: str = "validation",
) -> Page:
    """The page of these predictions."""
    evaluation = evaluate(outcomes_of(np.array(targets), probabilities), len(categories))
    half = (0.5, 0.5, 0.5)
    spec = ClassifierSpec("resnet18", False, tuple(categories), Framing(32, 48, 1.0), half, half)
    mistakes = Gallery("mistakes", "Mistakes", "Look at `mistakes.csv`.", cards)
    files = {"0,1": [HOSTILE[1]]}
    report = EvaluationReport(spec, dataset_name, evaluation, [mistakes], files, num_unreadable)
    return Page(render_evaluation(report))


def sure(
    targets: Sequence[int], predicted: Sequence[int], categories: Sequence[str], **more: Any
) -> Page:
    """The page of a model with full confidence in every prediction."""
    return page_of(targets, np.eye(len(categories))[list(predicted)], categories, **more)


def many(count: int, images: int, seed: int = 1) -> Page:
    """The page of many categories and random predictions, half of them right."""
    random = np.random.default_rng(seed)
    targets = random.integers(0, count, images)
    predicted = np.where(random.random(images) < 0.5, targets, random.integers(0, count, images))
    probabilities = np.zeros((images, count), np.float32)
    probabilities[np.arange(images), predicted] = 1
    return page_of(targets.tolist(), probabilities, [f"category {index}" for index in range(count)])


def map_data(page: Page) -> dict[str, Any]:
    """The data of the page's map."""
    data: dict[str, Any] = {}
    for text in page.texts("script"):
        data |= json.loads(text) if text.startswith("{") else {}
    return data


def picture(page: Page) -> Image.Image:
    """The image of the map."""
    (source,) = [
        image["src"]
        for image in page.all("img")
        if (image["src"] or "").startswith("data:image/png")
    ]
    return decoded(source or "")


SIX = tuple(f"category {index}" for index in range(6))


def test_the_main_metrics_are_shown() -> None:
    probabilities = np.array([[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    page = page_of([0, 1, 1, 2], probabilities, ("cat", "dog", "owl"))
    assert page.texts("h1") == ["Evaluation report: resnet18"]
    for text in (
        *("Dataset validation", "4 images", "3 categories", "32 \N{MULTIPLICATION SIGN} 48 px"),
        "Accuracy 75.0% 3 of 4 images, 95% confidence interval 30.1% to 95.4%",
        *(
            "Balanced accuracy 83.3% mean recall over 3 categories",
            "Macro F1 0.778 weighted F1: 0.750",
        ),
        "Loss 0.540 mean cross-entropy, in nats",
        "Calibration error 15.0% ECE; mean confidence 70.0%",
    ):
        assert text in page.text
    assert "Top 5" not in page.text
    assert "Top 5 accuracy 100.0% true category among the five" in sure([0, 1], [0, 1], SIX).text


def test_every_element_is_closed_and_ids_are_unique() -> None:
    for page in (many(300, 2000), sure([0, 1], [0, 0], HOSTILE)):
        assert page.unclosed == []
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        targets = [str(link["href"]).removeprefix("#") for link in page.all("a")]
        assert set(targets) <= set(ids)


def test_a_page_is_self_contained(tmp_path: Path) -> None:
    paint("red", 1).save(tmp_path / "1.png")
    card = Card([thumbnail(tmp_path / "1.png")], [], ["1.png"])
    page = sure([0, 1], [1, 1], ("a", "b"), cards=[card])
    sources = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "data", "action", "xlink:href")
    ]
    assert len(sources) == 5
    assert all(str(source).startswith(("#", "data:image/webp;base64,")) for source in sources)
    assert "link" not in {tag for tag, _ in page.elements}
    for style in page.texts("style"):
        assert "@import" not in style
        assert set(re.findall(r"url\((.)", style)) == {"#"}


def test_the_content_security_policy_allows_only_our_script() -> None:
    page = sure([0, 1], [1, 1], HOSTILE)
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    script = page.html.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src"
        f" 'sha256-{digest}';"
        " base-uri 'none'; form-action 'none'"
    )
    assert "addEventListener" in script


@pytest.mark.parametrize("count", [len(HOSTILE), 40])
def test_hostile_names_are_shown_as_text(count: int) -> None:
    names = [
        *HOSTILE,
        *(f"{index}{HOSTILE[index % len(HOSTILE)]}" for index in range(count - len(HOSTILE))),
    ]
    cards = [
        Card([""], [Fact("true", name), Fact("predicted", names[0])], [f"dir/{name}.png"])
        for name in names
    ]
    predicted = [*range(1, count), 0]
    page = sure(range(count), predicted, names, cards=cards, dataset_name=HOSTILE[0])
    plain = [f"category {index}" for index in range(count)]
    same = [Card([""], [Fact("true", name), Fact("predicted", plain[0])], [name]) for name in plain]
    assert [tag for tag, _ in page.elements] == [
        tag for tag, _ in sure(range(count), predicted, plain, cards=same).elements
    ]
    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on")
    ]
    # Every name is in an element with its own text direction.
    isolated = page.texts("bdi")
    assert set(names) <= set(isolated)
    assert not [
        text
        for tag in ("td", "th", "b", "p", "span")
        for text in page.texts(tag)
        if "\u202e" in text
    ]
    if count == 40:
        assert map_data(page)["names"] == names


def test_absent_categories_and_unreadable_images_are_noted() -> None:
    page = sure([0, 0], [0, 0], ("a", "b", "c"), num_unreadable=1)
    assert "2 categories have no images in this dataset: b , c ." in page.text
    assert (
        "1 image could not be read and is left out; bad_images.csv gives the reasons." in page.text
    )
    page = sure([0, 0], [0, 1], ("a", *(f"b{index}" for index in range(12))), num_unreadable=1200)
    assert "12 categories have no images in this dataset: b0 , b1 ," in page.text
    assert "b9 and 2 more." in page.text
    assert "b10 and" not in page.text
    assert "1,200 images could not be read and are left out;" in page.text
    assert "could not be read" not in sure([0, 1], [0, 1], ("a", "b")).text


def test_categories_with_undefined_metrics_come_last() -> None:
    page = sure([1, 1, 2, 2, 2, 2], [1, 2, 2, 2, 2, 2], ("a", "b", "c"))
    table = page.text.partition("Predicted b 0.667")[2]
    assert table.startswith(
        " 1.000 0.500 2 1 c 0.889 0.800 1.000 4 5 a \N{EN DASH} undefined: no images of this"
        " category, and"
    )


def test_a_predicted_category_without_images_is_sorted_by_its_f1() -> None:
    # b is never right; d has no image but is predicted once; a has none and is never predicted.
    page = sure([1, 2, 2, 2], [2, 2, 2, 3], ("a", "b", "c", "d"))
    table = page.html.partition('id="per-class"')[2].partition("</table>")[0]
    assert re.findall(r"<bdi>(.)</bdi>", table) == ["b", "d", "c", "a"]
    f1 = re.findall(r'<th scope="row".*\n\s*<td[^>]* data-value="([^"]*)"', table)
    assert [float(value) for value in f1] == pytest.approx([0, 0, 2 / 3, -1])
    assert "2 categories have no images in this dataset: a , d ." in page.text


def test_one_image_makes_a_page() -> None:
    page = sure([1], [1], ("a", "b"))
    for text in (
        "1 image",
        "1 of 1 images",
        "mean recall over 1 category",
        "No category was confused with another.",
    ):
        assert text in page.text
    assert page.all("img") == []


def test_a_perfect_model_makes_a_page() -> None:
    page = sure([0, 1, 2], [0, 1, 2], ("a", "b", "c"))
    for text in ("Accuracy 100.0%", "Loss 0.000", "Calibration error 0.0%", "Macro F1 1.000"):
        assert text in page.text


def test_few_categories_are_shown_as_a_table() -> None:
    page = sure([0, 0, 0, 1], [0, 0, 1, 1], ("cat", "dog"))
    assert [
        cell["class"] for cell in page.all("td") if cell.get("class") in ("hit", "mistake")
    ] == [*("hit", "mistake", "hit")]
    assert [cell["style"] for cell in page.all("td") if cell.get("class") == "mistake"] == [
        "--share:0.333"
    ]
    assert "cat 2 1 dog · 1" in page.text
    assert page.all("img") == []


@pytest.mark.parametrize(
    ("names", "is_turned"), [("0123456789", False), (["a long name", *"123456"], True)]
)
def test_column_names_are_rotated_if_they_do_not_fit(names: Sequence[str], is_turned: bool) -> None:
    page = sure([0], [0], names)
    (matrix,) = [table for table in page.all("table") if str(table["class"]).startswith("matrix")]
    assert ("turned" in str(matrix["class"])) == is_turned


def test_many_categories_are_shown_as_a_map() -> None:
    page = many(300, 2000)
    image = picture(page)
    assert image.size == (300, 300)
    assert "Each pixel covers" not in page.text
    data = map_data(page)
    assert (len(data["names"]), sum(data["support"]), data["rest"]) == (300, 2000, 0)
    assert sum(images for *_, images in data["cells"]) == 2000
    pixels = np.asarray(image.convert("RGBA"))
    shown = {(row, column) for row, column in zip(*np.nonzero(pixels[..., 3]), strict=True)}
    assert shown == {(true, predicted) for true, predicted, _ in data["cells"]}
    colours = {
        (true == predicted, tuple(pixels[true, predicted, :3].tolist()))
        for true, predicted, _ in data["cells"]
    }
    assert colours == {(True, HIT_COLOUR), (False, MISTAKE_COLOUR)}


def test_more_categories_than_pixels_share_the_pixels() -> None:
    count = 2 * MAX_MAP_SIDE + 1
    # Of the first three categories, two images are right, two taken for neighbours, five for the
    # last.
    targets = [*[0] * 8, 2, 3, 4, count - 1]
    predicted = [0, 0, 1, *[count - 1] * 5, 0, 4, 3, count - 1]
    page = sure(targets, predicted, [str(index) for index in range(count)])
    assert "Each pixel covers 3 \N{MULTIPLICATION SIGN} 3 categories" in page.text
    pixels = np.asarray(picture(page).convert("RGBA"))
    assert pixels.shape[:2] == (201, 201)
    shown = {
        (row, column): (tuple(pixels[row, column, :3].tolist()), pixels[row, column, 3] / 255)
        for row, column in np.argwhere(pixels[..., 3]).tolist()
    }
    assert shown == {
        (0, 0): (HIT_COLOUR, pytest.approx((2 / 9) ** 0.5, abs=0.01)),  # a tie
        (0, 200): (MISTAKE_COLOUR, pytest.approx((5 / 9) ** 0.5, abs=0.01)),
        (1, 1): (MISTAKE_COLOUR, 1),
        (200, 200): (HIT_COLOUR, 1),
    }


def test_mistakes_in_a_shared_pixel_do_not_hide_a_majority_of_hits() -> None:
    count, each = 1000, 20
    targets = np.repeat(np.arange(count), each)
    predicted = np.where(np.arange(count * each) % each == 0, targets ^ 1, targets)  # 95% are right
    probabilities = np.zeros((count * each, count), np.float32)
    probabilities[np.arange(count * each), predicted] = 1
    page = page_of(targets.tolist(), probabilities, [str(index) for index in range(count)])
    pixels = np.asarray(picture(page).convert("RGBA"))
    diagonal = pixels[np.arange(250), np.arange(250)]
    assert {tuple(pixel) for pixel in diagonal[:, :3].tolist()} == {HIT_COLOUR}
    assert diagonal[:, 3].min() / 255 == pytest.approx(0.95**0.5, abs=0.01)


def test_a_page_of_very_many_categories_has_a_bounded_size() -> None:
    random = np.random.default_rng(1)
    count, images = 5000, 6000
    targets = random.integers(0, count, images)
    probabilities = np.zeros((images, count), np.float32)
    probabilities[np.arange(images), random.integers(0, count, images)] = 1
    names = [f"{index}" + "<" * 5000 for index in range(count)]
    cards = [Card([""], [Fact("true", names[0])], ["<" * 4000])]
    page = page_of(targets.tolist(), probabilities, names, cards)
    assert len(page.all("tr")) <= MAX_ROWS + MAX_PAIRS + 20
    assert "Showing 1,000 of 5,000; all are in per_class.csv." in page.text
    assert max(map(len, page.texts("bdi"))) == MAX_NAME
    assert max(map(len, map_data(page)["names"])) == MAX_NAME
    assert len(page.html) < 5_000_000


def test_a_map_lists_only_its_largest_cells() -> None:
    side = 250  # 62,500 cells
    targets = np.repeat(np.arange(side), side)
    predicted = np.tile(np.arange(side), side)
    twice = [*targets.tolist(), 0], [*predicted.tolist(), 7]
    page = page_of(
        twice[0], np.eye(side, dtype=np.float32)[twice[1]], [str(index) for index in range(side)]
    )
    data = map_data(page)
    assert len(data["cells"]) == MAX_MAP_CELLS
    assert data["cells"][0] == [0, 7, 2]
    assert data["rest"] == 1


def test_calibration_is_drawn_for_bins_with_images_only() -> None:
    page = page_of([0, 0, 1], np.array([[0.6, 0.4], [0.9, 0.1], [0.9, 0.1]]), ("a", "b"))
    bars = [rect["class"] for rect in page.all("rect") if "class" in rect]
    assert bars == ["right", "gap", "share"] * 2
    assert "53.3% to 60.0% 1 60.0% 100.0% 86.7% to 93.3% 2 90.0% 50.0%" in page.text
    assert (
        "The expected calibration error (ECE), the mean gap over all images, is 40.0%." in page.text
    )


def test_the_page_of_a_test_links_the_report_on_the_training() -> None:
    page = sure([0, 1], [0, 1], ("a", "b"))
    assert "../report.html" not in page.html
    report = EvaluationReport(
        ClassifierSpec("resnet18", False, ("a", "b"), Framing(32, 48, 1.0), (0.5,) * 3, (0.5,) * 3),
        "test",
        evaluate(outcomes_of(np.array([0, 1]), np.eye(2)), 2),
        [],
        {},
        0,
        training_report="../report.html",
    )
    linked = Page(render_evaluation(report))
    assert "../report.html" in [link["href"] for link in linked.all("a")]
    assert "These images played no part in training." in linked.text
