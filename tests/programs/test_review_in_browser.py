"""The page of `review` in a real browser: decided by keyboard, closed, opened again and saved."""

from pathlib import Path

from tests.painting import paint
from tests.programs.chromium import Tab
from train_pytorch_model.formats.corrections import Correction, corrections_csv, read_corrections
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.quality.review_order import SUSPECT, UNLABELLED
from train_pytorch_model.reports.gallery import Heat
from train_pytorch_model.reports.pictures import small_picture
from train_pytorch_model.reports.review_page import Item, Review, render_review

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


def write_page(path: Path) -> Path:
    picture = small_picture(paint("red", 1))
    items = [
        Item(
            file=f'=run(<b>{index}</b>, "é")\n.png',
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
    review = Review(spec, "<photographs>", 900, CATEGORIES, items, earlier, 90, "", [], 12, "fit")
    path.write_text(render_review(review), encoding="utf-8")
    return path


def save(tab: Tab, folder: Path) -> bytes:
    folder.mkdir()
    tab.save_downloads(folder)
    tab.value_of("delete window.showSaveFilePicker")
    tab.press("s")
    tab.wait_for_download()
    assert tab.value_of("document.getElementById('saved').offsetParent !== null")
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


def test_a_finger_decides_and_takes_back(tab: Tab, tmp_path: Path) -> None:
    tab.resize(360)
    tab.open(write_page(tmp_path / "review.html"))
    tab.value_of("localStorage.clear()")
    tab.reload()
    small = """[...document.querySelectorAll("button, input, a, summary")].filter((one) => {
        const { width, height } = one.getBoundingClientRect();
        return one.offsetParent && (width < 44 || height < 44);
    }).map((one) => one.outerHTML)"""
    assert tab.value_of(small) == []
    decision = "document.getElementById('decision').textContent"
    tab.tap("#choices button:nth-child(5)")
    assert tab.value_of(decision) == f"2 of {NUM_ITEMS}: not decided"
    tab.tap("[data-do=discard]")
    tab.tap("[data-do=back]")
    assert tab.value_of(decision) == f"2 of {NUM_ITEMS}: decided: discarded"
    tab.tap("[data-do=back]")
    assert tab.value_of(decision) == f"1 of {NUM_ITEMS}: decided: category tulip"
    tab.tap("[data-do=undo]")  # of what was decided last
    assert tab.value_of(decision) == f"2 of {NUM_ITEMS}: not decided"
    progress = "document.getElementById('progress').textContent"
    assert tab.value_of(progress) == f"1 of {NUM_ITEMS} decided, {NUM_ITEMS - 1} left"
    visible = """(() => {
        const picture = document.querySelector(".current .image").getBoundingClientRect();
        return picture.bottom <= document.getElementById("decide").getBoundingClientRect().top;
    })()"""
    tab.value_of("document.getElementById('review').scrollIntoView({ behavior: 'instant' })")
    assert tab.value_of(visible) is True  # it is not behind the buttons
