"""What the page of `review` shows of each image."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train_pytorch_model.distributed.world import World
from train_pytorch_model.inference.explain import explain
from train_pytorch_model.machine.console import progress_bar
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.review_order import DOUBTFUL, SUSPECT, TWIN, UNLIKE, Ranked
from train_pytorch_model.quality.review_order import UNLABELLED as WITHOUT_CATEGORY
from train_pytorch_model.reports.gallery import Heat
from train_pytorch_model.reports.pictures import thumbnail
from train_pytorch_model.reports.review_page import MAX_PICTURE_BYTES, NUM_CHOICES, Item, Twin
from train_pytorch_model.reviewing.inputs import Predicted, ReviewInputs, digest_of

SIDE = 320  # px of a picture, about 15 kB
NUM_EXPLAINED = 100  # items with a heat map, for each of which the network runs back and forth
WHY = {
    TWIN: "It looks like an image of another category: one of the two is wrong.",
    UNLIKE: (
        "It is unlike the images that the model was trained on: perhaps of no category, or of a"
        " new one."
    ),
    DOUBTFUL: "The model prefers another category; such labels are often right.",
}


def items_of(
    inputs: ReviewInputs,
    world: World,
    predicted: Predicted,
    class_indices: np.ndarray,
    ranked: Sequence[Ranked],
) -> list[Item]:
    """Return what the page shows, until its pictures take `MAX_PICTURE_BYTES`.

    The images have these class indices, (N,), int64.
    """
    heats = _heats(inputs, world, predicted, ranked)
    items: list[Item] = []
    num_bytes = 0
    with progress_bar(len(ranked), "Pictures") as bar:
        for one, heat in zip(ranked, heats, strict=True):
            item = _item(inputs, predicted, class_indices, one, heat)
            num_bytes += _picture_bytes(item)
            if num_bytes > MAX_PICTURE_BYTES:
                break
            items.append(item)
            bar.advance()
    return items


def _item(
    inputs: ReviewInputs,
    predicted: Predicted,
    class_indices: np.ndarray,
    one: Ranked,
    heat: Heat | None,
) -> Item:
    """Return what the page shows of an image."""
    path = inputs.scoring.images.path(int(predicted.indices[one.index]))
    probabilities = predicted.probabilities[one.index]
    return Item(
        file=predicted.names[one.index],
        sha256=digest_of(path),
        kind=one.kind,
        given=_category(inputs, int(class_indices[one.index])),
        proposed=_category(inputs, one.proposed),
        why=_why(one, probabilities),
        choices=_choices(inputs, probabilities),
        picture=_picture(inputs, path),
        heat=heat,
        twin=_twin(inputs, predicted, class_indices, one),
    )


def _twin(
    inputs: ReviewInputs, predicted: Predicted, class_indices: np.ndarray, one: Ranked
) -> Twin | None:
    """Return the image that another looks like; None if that is not why it is on the page."""
    if one.twin < 0:
        return None
    path = inputs.scoring.images.path(int(predicted.indices[one.twin]))
    category = _category(inputs, int(class_indices[one.twin]))
    return Twin(predicted.names[one.twin], category, _picture(inputs, path))


def _category(inputs: ReviewInputs, class_index: int) -> str:
    return "" if class_index < 0 else inputs.reviewed.categories[class_index]


def _picture(inputs: ReviewInputs, path: Path) -> str:
    return thumbnail(path, inputs.scoring.spec.framing.colours, SIDE)


def _picture_bytes(item: Item) -> int:
    """Return how much of a page the pictures of an image take."""
    twin = len(item.twin.picture) if item.twin else 0
    heat = len(item.heat.picture) if item.heat else 0
    return len(item.picture) + twin + heat


def _heats(
    inputs: ReviewInputs, world: World, predicted: Predicted, ranked: Sequence[Ranked]
) -> list[Heat | None]:
    """Return what spoke for the predictions of the first items, and None for the others."""
    first = [one.index for one in ranked[:NUM_EXPLAINED]]
    if not first:
        return []
    spec = inputs.scoring.spec
    network = build_model(inputs.scoring.model, spec.categories).to(world.device)
    heats = explain(network, spec, inputs.scoring.images, predicted.indices[first])
    return [*heats, *[None] * (len(ranked) - len(first))]


def _choices(inputs: ReviewInputs, probabilities: np.ndarray) -> list[str]:
    """Return the most probable categories of the model, the first one first."""
    order = np.argsort(-probabilities, kind="stable")[:NUM_CHOICES]
    return [inputs.scoring.spec.categories[index] for index in order.tolist()]


def _why(one: Ranked, probabilities: np.ndarray) -> str:
    """Return why an image needs a decision."""
    if one.kind == SUSPECT:
        return f"The category is wrong with a probability of {one.wrong:.0%}."
    if one.kind == WITHOUT_CATEGORY:
        return _why_uncertain(probabilities)
    return WHY[one.kind]


def _why_uncertain(probabilities: np.ndarray) -> str:
    second, first = np.sort(probabilities)[-2:]  # with one category, no image is uncertain
    return f"It has no category; the model gives the first two {first:.0%} and {second:.0%}."
