"""Sections of a page that show pictures with captions."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import Evaluation, Outcomes
from train_pytorch_model.evaluation.tables import Prediction, prediction_rows
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import Colours
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.quality.suspects import SUSPECTS, Suspect
from train_pytorch_model.quality.to_label import Candidate
from train_pytorch_model.quality.twins import TWINS, TwinRow
from train_pytorch_model.reports.page import render_page
from train_pytorch_model.reports.pictures import thumbnail

EXPLAINED = "explained.html"
MAX_MISTAKES = 24  # with their pictures, about 4 kB each
MAX_UNCERTAIN = 6
MAX_RIGHT = 6
MAX_SUSPECTS = 12
MAX_TWINS = 12  # pairs
HEAT_NOTE = "Pink is what spoke for the prediction; point at a picture, or tap it, to see it plain."
ABOUT_UNCERTAIN = (
    "The images with the lowest confidence, right or wrong. More training images that look like"
    " these would"
    " teach the model most."
)
ABOUT_RIGHT = "The most confident one of each category, as examples of what the model has learned."


class Fact(NamedTuple):
    """A line of a caption: `label: name (detail)`. Only the name may be untrusted."""

    label: str
    name: str
    detail: str = ""


class Heat(NamedTuple):
    """What in a picture a network answered by."""

    picture: str  # a data URI, transparent where nothing is
    region: tuple[
        float, float, float, float
    ]  # left, top, width, height; 0 to 1, of the picture's size


class Card(NamedTuple):
    """One picture, or several that belong together, and what there is to say about them."""

    pictures: Sequence[str]  # data URIs by `thumbnail`; an empty one cannot be shown
    facts: Sequence[Fact]
    files: Sequence[str] = ()  # the name of each picture's file; may contain anything
    heat: Heat | None = None  # of the first picture


class Gallery(NamedTuple):
    """A section of the page, which its navigation links."""

    id: str
    title: str
    text: str  # what is shown, without file or category names; code in backticks
    cards: Sequence[Card]


def prediction_galleries(
    evaluation: Evaluation,
    outcomes: Outcomes,
    images: ImageDirectory,
    indices: np.ndarray,
    colours: Colours,
    explain: Callable[[np.ndarray], Sequence[Heat | None]],
    rest: str = "",
) -> list[Gallery]:
    """The most confident mistakes, the least certain predictions and some right ones, with their
    pictures.

    `indices` (N,) are those of the images of the outcomes. `explain` gives the heats, for some of
    these, to lie over the mistakes and the least certain ones. `rest` says where all mistakes are.
    """
    mistakes = evaluation.mistakes[:MAX_MISTAKES]
    uncertain = np.argsort(outcomes.confidences, kind="stable")[:MAX_UNCERTAIN]
    by_confidence = np.argsort(-outcomes.confidences, kind="stable")
    hits = by_confidence[outcomes.target_ranks[by_confidence] == 0]
    _, surest = np.unique(
        outcomes.targets[hits], return_index=True
    )  # among the hits of each category
    explained = np.unique(np.concatenate([mistakes, uncertain]))
    heats = dict(zip(explained.tolist(), explain(indices[explained]), strict=True))

    def cards(rows: np.ndarray, heats: Mapping[int, Heat | None]) -> list[Card]:
        predictions = prediction_rows(outcomes, rows, images, indices)
        return [
            Card(
                [thumbnail(images.root / each.file_name, colours)],
                _facts(each),
                [each.original or each.file_name],
                heats.get(row),
            )
            for each, row in zip(predictions, rows.tolist(), strict=True)
        ]

    count, text = len(evaluation.mistakes), "None: every image was classified correctly."
    if count:
        total, were = counted(evaluation.images, "image", "images"), "was" if count == 1 else "were"
        shown = f" Shown are the {MAX_MISTAKES} with the highest confidence{rest}."
        text = (
            f"{count:,} of {total} {were} misclassified.{shown if count > MAX_MISTAKES else ''}"
            " The percentages are predicted probabilities. Check for wrong labels too."
            f"{f' {HEAT_NOTE}' if any(heats.values()) else ''}"
        )
    galleries = [
        Gallery("mistakes", "Most confident mistakes", text, cards(mistakes, heats)),
        Gallery("uncertain", "Least certain predictions", ABOUT_UNCERTAIN, cards(uncertain, heats)),
        Gallery(
            "right", "Right predictions", ABOUT_RIGHT, cards(hits[np.sort(surest)][:MAX_RIGHT], {})
        ),
    ]
    return [gallery for gallery in galleries if gallery.cards or gallery.id == "mistakes"]


def _facts(prediction: Prediction) -> list[Fact]:
    confidence = f"{prediction.confidence:.1%}"
    if prediction.category == prediction.predicted:
        return [Fact("right", prediction.category, confidence)]
    return [
        Fact("true", prediction.category, f"{prediction.category_probability:.1%}"),
        Fact("predicted", prediction.predicted, confidence),
    ]


def suspects_gallery(
    suspects: Sequence[Suspect], data_sets: Sequence[ImageDirectory], colours: Colours
) -> list[Gallery]:
    """The images of these data sets whose category is most probably wrong; no gallery if there is
    none.
    """
    roots = {images.port: images.root for images in data_sets}
    cards = [
        Card(
            [thumbnail(roots[each.dataset] / each.file, colours)],
            [
                Fact("given", each.given, f"{each.score:.1%}"),
                Fact("rather", each.proposed),
                Fact("in", each.dataset.lower()),
            ],
            [each.original or each.file],
        )
        for each in suspects[:MAX_SUSPECTS]
    ]
    text = (
        f"{counted(len(suspects), 'image', 'images')} may have a wrong category; `{SUSPECTS}` lists"
        " all. Of"
        " training images, the model kept preferring another category while it learned them; of"
        " validation"
        " images, it is sure of another one. The percentages are what it gives the category of the"
        " image."
        " Correct what is wrong and train again."
    )
    return [Gallery("suspects", "Look at these first", text, cards)] if cards else []


def twins_gallery(
    rows: Sequence[TwinRow], both: Sequence[ImageDirectory], colours: Colours
) -> list[Gallery]:
    """The first pairs of images that look alike; no gallery if there is none."""
    roots = {images.port: images.root for images in both}
    cards = [
        Card(
            [
                thumbnail(roots[port] / name, colours)
                for port, name in ((row.port, row.file_name), (row.other_port, row.other_file_name))
            ],
            [
                Fact(row.port.partition(" ")[0].lower(), row.category),
                Fact(row.other_port.partition(" ")[0].lower(), row.other_category, row.kind),
            ],
            [row.file_name, row.other_file_name],
        )
        for row in rows[:MAX_TWINS]
    ]
    pairs = counted(len(rows), "pair of images looks", "pairs of images look")
    text = f"{pairs} alike; `{TWINS}` lists them. Pairs in different categories come first."
    return [Gallery("twins", "Images that look alike", text, cards)] if cards else []


def render_explained(
    spec: ClassifierSpec,
    images: ImageDirectory,
    shown: Sequence[Candidate],
    heats: Sequence[Heat | None],
) -> str:
    """Render a page of the least certain predictions of unlabelled images, with the heat of each."""
    originals = images.original_names(np.array([each.index for each in shown], np.int64))
    cards = [
        Card(
            [thumbnail(images.path(each.index), spec.framing.colours)],
            [
                Fact(label, spec.categories[index], f"{share:.1%}")
                for label, index, share in zip(
                    ("predicted", "or"), each.top, each.probabilities, strict=True
                )
            ],
            [original or images.file_names[each.index]],
            heat,
        )
        for each, original, heat in zip(shown, originals, heats, strict=True)
    ]
    text = f"The images of which the first two categories are the closest, the closest first. {HEAT_NOTE}"
    return render_page(
        EXPLAINED,
        spec=spec,
        dataset_name=images.name,
        images=len(images),
        gallery=Gallery("uncertain", "Least certain predictions", text, cards),
    )
