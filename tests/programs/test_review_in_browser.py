"""The page of `review` in a real browser: decided by keyboard, closed, opened again and saved."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.painting import paint
from tests.programs.chromium import Tab, open_tab
from train_pytorch_model.formats.corrections import Correction, corrections_csv, read_corrections
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.quality.review_order import SUSPECT, UNLABELLED
from train_pytorch_model.reports.gallery import Heat
from train_pytorch_model.reports.pictures import small_picture
from train_pytorch_model.reports.review_page import Item, Review, render_review

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

CATEGORIES = [
    "daisy",
    "discarded",
    "<img src=x onerror=document.title='run'>",
    '日本, "ünï"',
    "tulip",
    "not_sure",
]
NUM_ITEMS = 205
NUM_DECIDED = 200
HALF = (0.5, 0.5, 0.5)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    assert BROWSER
    with open_tab(BROWSER, tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def write_page(path: Path) -> Path:
    picture = small_picture(paint("red", 1))
    items = [
        Item(
            file=f'<b>{index}</b>, "é"\n.png',
            sha256=f"{index:064x}",
            kind=SUSPECT if index % 2 else UNLABELLED,
            given=CATEGORIES[index % 5] if index % 2 else "",
            proposed=CATEGORIES[(index + 1) % 5],
            why="The category is wrong.",
            choices=CATEGORIES,
            picture=picture,
            heat=Heat(picture, (0, 0, 1, 1)),
        )
        for index in range(NUM_ITEMS)
    ]
    earlier = [Correction("earlier, 1.png", "", "daisy", "tulip", "me", "2026-01-01T00:00:00Z")]
    spec = ClassifierSpec("resnet18", False, tuple(CATEGORIES), Framing(32, 32, 1.0), HALF, HALF)
    review = Review(spec, "<photographs>", 900, CATEGORIES, items, earlier, 90, "", [], 12)
    path.write_text(render_review(review), encoding="utf-8")
    return path


def save(tab: Tab, folder: Path) -> bytes:
    folder.mkdir()
    tab.save_downloads(folder)
    tab.value_of("delete window.showSaveFilePicker; document.getElementById('save').click()")
    tab.wait_for_download()
    return (folder / "corrections.csv").read_bytes()


def test_200_decisions_by_keyboard_survive_closing_the_page(tab: Tab, tmp_path: Path) -> None:
    tab.open(write_page(tmp_path / "review.html"))
    for number in range(NUM_DECIDED // 10):
        # Accept, discard, not sure, two by number, one by typing, undone, gone back and changed.
        tab.press("Enter", "6", "n", "1", "3", "/", "t", "u", "l", "Enter", "x", "u", "5", "2")
        tab.press("ArrowLeft", "4", "k" if number % 2 else "n", "n", "d")
    text = "document.getElementById('progress').textContent"
    decided = tab.value_of(text)
    assert decided.split(" of ")[1].startswith(f"{NUM_ITEMS} decided")
    assert int(decided.split()[0]) >= NUM_DECIDED
    before = save(tab, tmp_path / "before")

    tab.reload()
    assert tab.value_of(text) == decided
    assert save(tab, tmp_path / "after") == before
    rows = read_corrections(tmp_path / "after" / "corrections.csv")
    assert len(rows) == 1 + int(decided.split()[0])
    assert {row.decision for row in rows} >= {"discarded", "not sure", "tulip", "daisy"}
    assert {row.category for row in rows} >= {"discarded", "not_sure", CATEGORIES[2], CATEGORIES[3]}
    assert corrections_csv(rows).encode() == before  # as Python writes them
    assert tab.value_of("document.title") == "Review: <photographs>"
    assert tab.console == []


def test_it_fits_a_phone_and_every_control_is_named(tab: Tab, tmp_path: Path) -> None:
    tab.open(write_page(tmp_path / "review.html"))
    for width, is_dark in ((360, False), (360, True), (1400, False)):
        tab.resize(width, is_dark)
        too_wide = "document.documentElement.scrollWidth - innerWidth"
        assert tab.value_of(too_wide) <= 0, width
    unnamed = """[...document.querySelectorAll("button, input, img")].filter((one) =>
        one.offsetParent && !(one.textContent.trim() || one.alt || one.labels?.length)).length"""
    assert tab.value_of(unnamed) == 0
    shown = "[...document.querySelectorAll('#items > li')].filter((one) => one.offsetParent).length"
    assert tab.value_of(shown) == 1
    tab.press("h", "z")
    assert tab.value_of("document.querySelector('.current .heat').hidden") is False
    assert tab.value_of("document.body.classList.contains('zoomed')") is True
