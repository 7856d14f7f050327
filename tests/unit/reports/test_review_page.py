"""The page of `review` without its script, and with hostile names."""

import json
from html import unescape

from tests.pages import HOSTILE, Page

from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.quality.review_order import (
    DOUBTFUL,
    SUSPECT,
    TWIN,
    UNLABELLED,
    UNLIKE,
)
from train_pytorch_model.reports.page_links import PageLink
from train_pytorch_model.reports.review_page import Item, Review, Twin, render_review

KINDS = (SUSPECT, TWIN, UNLABELLED, UNLIKE, DOUBTFUL)
NAMES = (*HOSTILE, "javascript:alert(1)", "=cmd|' /C calc'!A0", "caf\udce9")
HALF = (0.5, 0.5, 0.5)


def items_named(names: tuple[str, ...]) -> list[Item]:
    """An item for each name, which is that of its file and of its categories."""
    items = []
    for index, name in enumerate(names):
        kind = KINDS[index % len(KINDS)]
        twin = Twin(f"twin/{name}", f"{name} 2", "") if kind == TWIN else None
        item = Item(
            file=f"{name}/{index}.png",
            sha256=f"{index:064x}",
            kind=kind,
            given="" if kind == UNLABELLED else f"given {name}",
            proposed=f"rather {name}",
            why=f"Why number {index}.",
            choices=[],
            picture="",
            twin=twin,
        )
        items.append(item)
    return items


def page_of(items: list[Item]) -> Page:
    """The page of these items, as a browser without scripts parses it."""
    names = {name for item in items for name in (item.given, item.proposed) if name}
    spec = ClassifierSpec("resnet18", False, ("a", "b"), Framing(32, 32, 1.0), HALF, HALF)
    links = [PageLink("model/report.html", "Report on the training")]
    review = Review(
        spec, "photographs", 99, sorted(names), items, [], 1, "model/report.html", links, 0, "fit"
    )
    return Page(render_review(review))


def shown(name: str) -> str:
    """A name as text shows it: in one line, with what no encoding has written out."""
    return " ".join(name.encode("utf-8", "backslashreplace").decode().split())


def test_a_browser_without_scripts_lists_every_image_with_what_there_is_to_say() -> None:
    items = items_named(("daisy", "tulip", "rose", "日本", "poppy"))
    page = page_of(items)
    assert len(page.all("li")) == len(items)
    for item in items:
        for text in (item.file, item.given, item.proposed, item.why):
            assert text in page.text
    assert "twin/tulip : tulip 2" in page.text
    assert "Without scripts, this page only lists the images." in page.text
    hidden = {element["id"] for _, element in page.elements if "hidden" in element}
    assert hidden == {"tools", "saved", "kept", "decide"}  # what needs the script


def test_names_run_nothing_and_stay_text() -> None:
    plain = page_of(items_named(tuple(f"name {index}" for index in range(len(NAMES)))))
    hostile = page_of(items_named(NAMES))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    for (tag, attributes), (_, expected) in zip(hostile.elements, plain.elements, strict=True):
        assert attributes.keys() == expected.keys(), tag
    assert [link["href"] for link in hostile.all("a")] == ["model/report.html"]
    for name in NAMES:
        assert shown(f"given {name}") in hostile.text or NAMES.index(name) % len(KINDS) == 2
        assert shown(f"rather {name}") in hostile.text
    data = json.loads(unescape(hostile.texts("script")[0]))
    assert [item["file"] for item in data["items"]] == [
        f"{name}/{index}.png".encode("utf-8", "backslashreplace").decode()
        for index, name in enumerate(NAMES)
    ]
