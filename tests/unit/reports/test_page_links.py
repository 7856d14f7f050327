"""Links from one page to another."""

from pathlib import Path

import pytest

from train_pytorch_model.reports.page_links import address_of, links_to, pages_about


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model = tmp_path / "work" / "a model: #1?"
    model.mkdir(parents=True)
    (model / "report.html").touch()
    return model


def test_a_page_is_linked_from_near_by(model: Path) -> None:
    report = model / "report.html"
    assert address_of(report, model.parent) == "a%20model%3A%20%231%3F/report.html"
    assert address_of(report, model / "evaluation") == "../report.html"
    far = model.parent / "results" / "first"
    assert address_of(report, far) == "../../a%20model%3A%20%231%3F/report.html"
    assert address_of(report, far / "second") == ""


def test_a_link_over_the_root_would_tell_the_folders_of_the_machine(model: Path) -> None:
    assert address_of(model / "report.html", Path("/elsewhere")) == ""
    assert address_of(model / "report.html", Path("/elsewhere/results")) == ""


def test_only_pages_that_are_there_are_linked(model: Path) -> None:
    links = links_to(pages_about(model), model.parent)
    assert [link.title for link in links] == ["Report on the training"]
    (model / "report.html").unlink()
    assert links_to(pages_about(model), model.parent) == []
