"""The page of `review`: what is on it, what it says without scripts, and what it refuses."""

import json
import logging
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.pages import Page
from tests.painting import paint, paint_folders
from tests.trainings import TINY

from train_pytorch_model import fit
from train_pytorch_model.api.model import Model
from train_pytorch_model.errors import InvalidDatasetError, OutputDirectoryError, ParameterError
from train_pytorch_model.formats.reading import sha256_of
from train_pytorch_model.reviewing import items as review_items
from train_pytorch_model.stories.write_review import write_review

HOSTILE = "<script>alert(1)<!--'\".png"


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A folder with a wrong label, twins that contradict each other and hostile names; a model."""
    folder = paint_folders(tmp_path_factory.mktemp("review") / "photographs", 12, size=(16, 16))
    (folder / "blue" / "1.png").rename(folder / "blue" / HOSTILE)
    model = fit(
        folder,
        architecture=TINY,
        from_scratch=True,
        image_size=16,
        epochs=2,
        quiet=True,
    )
    shutil.copy(folder / "red" / "2.png", folder / "green" / "twin.png")
    paint("red", 99, (16, 16)).save(folder / "loose.png")
    return folder, model


def data_of(page: str) -> Any:
    """What the page gives its script."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(unescape(found[1]))


def test_the_page_lists_what_needs_a_decision(reviewed: tuple[Path, Model], tmp_path: Path) -> None:
    folder, model = reviewed
    page = model.review(folder, tmp_path / "review.html")
    text = page.path.read_text(encoding="utf-8")
    items = {item["file"]: item for item in data_of(text)["items"]}
    categories = data_of(text)["categories"]
    assert {"green/twin.png", "red/2.png", "loose.png"} <= items.keys()
    twin = items["green/twin.png"]
    assert categories[twin["given"]] == "green"
    assert twin["sha256"] == sha256_of(folder / "green" / "twin.png")
    assert items["loose.png"]["given"] == -1
    links = [(tmp_path / unquote(link["href"] or "")).resolve() for link in Page(text).all("a")]
    assert links == [model.root / "report.html", model.root / "evaluation" / "evaluation.html"]
    assert str(folder.parent) not in text  # nor the folder of the model beside it
    assert "fit FOLDER --corrections corrections.csv" in text
    # A browser without scripts has the same.
    assert text.count("<li id=") == len(items)
    assert "It looks like an image of another category" in text
    assert "It has no category" in text


def test_an_evaluation_links_what_there_is_about_its_model(
    reviewed: tuple[Path, Model], tmp_path: Path
) -> None:
    folder, model = reviewed
    for number, output in enumerate((model.root.parent / "evaluated", tmp_path / "evaluated")):
        if number:
            (model.root.parent / "review.html").write_text("<p>Another page", encoding="utf-8")
        else:
            model.review(folder, model.root.parent / "review.html")
        model.evaluate(folder, output)
        page = Page((output / "evaluation.html").read_text(encoding="utf-8"))
        links = [link["href"] or "" for link in page.all("a")]
        others = [link for link in links if not link.startswith("#")]
        linked = {(output / unquote(link)).resolve() for link in others}
        about = {model.root / "report.html", model.root / "evaluation" / "evaluation.html"}
        review = {model.root.parent / "review.html"}
        assert linked == (about if number else about | review)


def test_a_page_that_is_full_says_what_is_on_it(
    reviewed: tuple[Path, Model],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, model = reviewed
    monkeypatch.setattr(review_items, "MAX_PICTURE_BYTES", 900)
    with caplog.at_level(logging.INFO, "train_pytorch_model"):
        write_review(model.root, folder, tmp_path / "review.html")
    text = (tmp_path / "review.html").read_text(encoding="utf-8")
    num_items = len(data_of(text)["items"])
    assert 0 < num_items < 3
    assert re.search(r"([\d,]+) images? to decide on", caplog.text)[1] == str(num_items)  # type: ignore[index]
    assert re.search(r"[\d,]+ more are not on this page", text)


def test_hostile_names_stay_text(reviewed: tuple[Path, Model], tmp_path: Path) -> None:
    folder, model = reviewed
    text = model.review(folder, tmp_path / "review.html").path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("<script") == text.count("</script>") == 2


def test_decisions_are_not_asked_again(reviewed: tuple[Path, Model], tmp_path: Path) -> None:
    folder, model = reviewed
    table = tmp_path / "corrections.csv"
    table.write_text(
        f"file,decision,sha256\nloose.png,red,\nred/2.png,red,{'0' * 64}\n", encoding="utf-8"
    )
    page = model.review(folder, tmp_path / "review.html", corrections=table)
    data = data_of(page.path.read_text(encoding="utf-8"))
    files = [item["file"] for item in data["items"]]
    assert "loose.png" not in files
    assert "red/2.png" in files  # its content was another one
    assert [row[0] for row in data["earlier"]] == ["loose.png", "red/2.png"]


def test_a_folder_of_other_names_is_unlabelled(
    reviewed: tuple[Path, Model], tmp_path: Path
) -> None:
    _, model = reviewed
    new = tmp_path / "new"
    for index in range(4):
        (new / f"2026-0{index % 2 + 1}").mkdir(parents=True, exist_ok=True)
        paint("red", index, (16, 16)).save(new / f"2026-0{index % 2 + 1}" / f"{index}.png")
    page = model.review(new, tmp_path / "review.html", num_images=3)
    text = page.path.read_text(encoding="utf-8")
    assert "fit FOLDER --corrections NEW-FOLDER/corrections.csv" in text
    items = data_of(text)["items"]
    assert len(items) == 3
    assert {item["given"] for item in items} == {-1}
    assert all(item["proposed"] >= 0 for item in items)


def test_what_cannot_be_reviewed_is_refused(reviewed: tuple[Path, Model], tmp_path: Path) -> None:
    folder, model = reviewed
    (tmp_path / "mine.html").write_text("<p>mine")
    with pytest.raises(OutputDirectoryError, match=r"no page of this program\. Name another"):
        model.review(folder, tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == "<p>mine"
    with pytest.raises(OutputDirectoryError, match=r"give it a name that ends in \.html"):
        model.review(folder, folder / "red" / "2.png")
    with pytest.raises(OutputDirectoryError, match="is in no existing directory"):
        model.review(folder, tmp_path / "nowhere" / "review.html")
    with pytest.raises(ParameterError, match="from 1 to 500"):
        model.review(folder, tmp_path / "review.html", num_images=501)
    with pytest.raises(InvalidDatasetError, match="no such directory"):
        model.review(tmp_path / "nowhere", tmp_path / "review.html")
    (tmp_path / "images.zip").touch()
    with pytest.raises(InvalidDatasetError, match="Unpack it, and name its folder"):
        model.review(tmp_path / "images.zip", tmp_path / "review.html")
