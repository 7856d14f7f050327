"""What the page of `review` shows of each image."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.painting import paint
from tests.reviews import predicted_of, review_inputs

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.listing import UNLABELLED
from train_pytorch_model.quality.review_order import SUSPECT, TWIN, Ranked
from train_pytorch_model.quality.review_order import UNLABELLED as WITHOUT_CATEGORY
from train_pytorch_model.reports.review_page import Item
from train_pytorch_model.reviewing import items

CATEGORIES = ("bee", "fly", "wasp")
FILES = ("1.png", "2.png", "3.png")
RANKED = (
    Ranked(0, TWIN, 2, 0.6, twin=1),
    Ranked(1, SUSPECT, 0, 0.75),
    Ranked(2, WITHOUT_CATEGORY, 1),
)


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Item]:
    """The items of three images, of which the last one has been deleted."""
    root = tmp_path / "images"
    root.mkdir()
    for index, file in enumerate(FILES[:2]):
        paint("red", index, (16, 16)).save(root / file)
    class_indices = np.array([0, 2, UNLABELLED])
    probabilities = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.3, 0.45, 0.25]], np.float32)
    monkeypatch.setattr(items, "explain", lambda *_: [None] * 3)  # there are no weights
    monkeypatch.setattr(items, "build_model", lambda *_: torch.nn.Identity())
    return items.items_of(
        review_inputs(root, FILES, class_indices, CATEGORIES),
        World(0, 1, 0, 1, torch.device("cpu")),
        predicted_of(FILES, probabilities),
        class_indices,
        RANKED,
    )


def test_each_image_has_what_to_decide_on_and_why(shown: list[Item]) -> None:
    assert [(item.file, item.given, item.proposed) for item in shown] == [
        ("1.png", "bee", "wasp"),
        ("2.png", "wasp", "bee"),
        ("3.png", "", "fly"),
    ]
    assert [list(item.choices) for item in shown] == [
        ["wasp", "fly", "bee"],
        ["bee", "fly", "wasp"],
        ["fly", "bee", "wasp"],
    ]
    assert [item.why for item in shown] == [
        "It looks like an image of another category: one of the two is wrong.",
        "The category is wrong with a probability of 75%.",
        "It has no category; the model gives the first two 45% and 30%.",
    ]


def test_an_image_that_looks_like_another_is_shown_with_it(shown: list[Item]) -> None:
    first, second, _ = shown
    assert first.twin is not None
    assert (first.twin.file, first.twin.category) == ("2.png", "wasp")
    assert first.twin.picture == second.picture
    assert first.twin.picture.startswith("data:image/")
    assert second.twin is None


def test_an_image_that_was_deleted_has_no_picture(shown: list[Item]) -> None:
    assert [bool(item.picture) for item in shown] == [True, True, False]
    assert [len(item.sha256) for item in shown] == [64, 64, 0]
