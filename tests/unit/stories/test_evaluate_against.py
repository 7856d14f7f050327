"""Two models on the same images: both columns, the paired test in words, and where they differ."""

from pathlib import Path

import pytest
import torch
from tests.painting import paint_scene

from train_pytorch_model.api.model import Model
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.image_classifier.weights import write_state_dict

NETWORK = "timm:test_resnet"
HALF = (0.5, 0.5, 0.5)


def model_that_always_says(answer: str, categories: tuple[str, ...], root: Path) -> Path:
    network = build(NETWORK, False, len(categories))
    head = network.get_classifier()  # type: ignore[operator]
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([2.0 * (name == answer) for name in categories]))
    meta: dict[str, object] = {}
    with writing_directory(root, meta, "output") as built:
        write_state_dict(built / MODEL, network.state_dict())
        meta |= write_spec(
            built,
            architecture=NETWORK,
            option=False,
            is_pretrained=False,
            recipe=Recipe(image_size=32, mean=HALF, std=HALF),
            categories=categories,
        )
    return root


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Three images of `a` and one of `b`."""
    for number, name in enumerate(("a/1", "a/2", "a/3", "b/4")):
        path = tmp_path / "images" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        paint_scene(number, (32, 32)).save(path)
    return tmp_path / "images"


def test_two_models_are_compared_whatever_the_order_of_their_categories(
    images: Path, tmp_path: Path
) -> None:
    this = Model(model_that_always_says("a", ("a", "b"), tmp_path / "this"))
    other = Model(model_that_always_says("b", ("b", "a"), tmp_path / "other"))
    evaluated = this.evaluate(images, against=other)
    against = evaluated.metrics["against"]
    assert evaluated.accuracy == 0.75
    assert (against["model"], against["accuracy"]) == ("other", 0.25)
    assert (against["only_this_is_right"], against["only_the_other_is_right"]) == (3, 1)
    assert against["p_value"] == pytest.approx(2 * (1 + 4) / 16)  # 0 or 1 of four, either way
    page = " ".join(evaluated.page.split())
    assert "This model alone is right on 3 images, the other alone on 1." in page
    assert "in 62 of 100 such comparisons: these images do not tell which one is better." in page
    assert "Just one of the two models is right on 4 images." in page
    assert page.index("Where the models differ") < page.index("Most confident mistakes")


def test_a_model_that_answers_the_same_cannot_be_told_apart(images: Path, tmp_path: Path) -> None:
    this = Model(model_that_always_says("a", ("a", "b"), tmp_path / "this"))
    evaluated = this.evaluate(images, against=this.root)
    assert "Both models are right on the same images" in evaluated.page
    assert "Where the models differ" not in evaluated.page
    assert evaluated.metrics["against"]["p_value"] == 1


def test_models_of_other_categories_are_refused_by_name(images: Path, tmp_path: Path) -> None:
    this = Model(model_that_always_says("a", ("a", "b"), tmp_path / "this"))
    other = model_that_always_says("a", ("a", "c"), tmp_path / "other")
    with pytest.raises(ParameterError, match="has other categories") as raised:
        this.evaluate(images, against=other)
    assert "'b' is known to the evaluated model only" in str(raised.value)
    assert "'c' is known to the other model only" in str(raised.value)


def test_without_another_model_nothing_is_compared(images: Path, tmp_path: Path) -> None:
    this = Model(model_that_always_says("a", ("a", "b"), tmp_path / "this"))
    evaluated = this.evaluate(images)
    assert "against" not in evaluated.metrics
    assert "Compared with" not in evaluated.page
