"""Self-contained HTML pages: single files that open anywhere, without a network; and their
galleries.

File and category names are untrusted: the templates escape them, and the Content-Security-Policy of
a page forbids it to load anything or to run any script but ours. `templates/parts.html` holds the
shared macros; its `gallery` draws a `Gallery`, a section that shows pictures with captions in a
grid.
"""

import base64
import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from train_pytorch_model import __version__
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import (
    AS_USUAL,
    Colours,
    UnreadableImageError,
    decode,
)
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.measures.data_quality import SUSPECTS, TWINS, Candidate, Suspect, TwinRow
from train_pytorch_model.measures.evaluation import Evaluation, Outcomes
from train_pytorch_model.measures.evaluation_directory import Prediction, prediction_rows
from train_pytorch_model.measures.time_budget import duration
from train_pytorch_model.words.errors import counted

EXPLAINED = "explained.html"
MAX_NAME = 100  # characters; longer names are truncated
BETWEEN_WORDS = re.compile(r"(?<=[/\\_+,=&@-])")  # where a name may be broken, besides at spaces
THUMBNAIL_SIDE = 160  # px
THUMBNAIL_QUALITY = 75
HEAT_SIDE = 32  # px; browsers smooth it
HEAT_LEVELS = 16
HEAT_COLOUR = (255, 0, 170)  # which photographs hardly have
MAX_HEAT = 0.75  # opacity: the picture can still be recognized
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


def render_page(template: str, **values: object) -> str:
    """Render a template that extends `page.html`."""
    environment = Environment(
        loader=PackageLoader("train_pytorch_model.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shorten": shorten, "breakable": breakable}
    environment.globals |= {"counted": counted, "duration": duration}
    script = environment.get_template("page.js").render()
    page = environment.get_template(template).render(
        version=__version__,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )
    # A file name that is not valid UTF-8 holds lone surrogates, which cannot be encoded.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def shorten(name: str) -> str:
    """The name, truncated to `MAX_NAME` characters."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def breakable(text: str) -> Markup:
    """The text, escaped, with points at which a browser may break its names: between words, not
    inside.
    """
    return Markup("<wbr>").join(BETWEEN_WORDS.split(text))


def thumbnail(path: Path, colours: Colours = AS_USUAL) -> str:
    """The image of a file as by `small_picture`; empty if it cannot be read."""
    try:
        return small_picture(decode(path, THUMBNAIL_SIDE, colours))
    except UnreadableImageError:  # deleted since it was evaluated
        return ""


def small_picture(image: Image.Image) -> str:
    """The image at no more than `THUMBNAIL_SIDE` px a side, as a data URI."""
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    small.info.clear()  # or the comments of the file would be copied
    return encode(small, "WEBP", quality=THUMBNAIL_QUALITY)  # a third smaller than as a JPEG


def heat_picture(heat: np.ndarray) -> str:
    """A heat map (h, w), float32, from 0 to 1, as a data URI of some hundred bytes: clear to pink."""
    image = Image.fromarray(heat)
    image.thumbnail((HEAT_SIDE, HEAT_SIDE), Image.Resampling.BOX)
    shares = np.cbrt(
        np.asarray(image) / np.asarray(image).max()
    )  # or only the hottest spot is seen
    levels = Image.fromarray(np.rint(shares * (HEAT_LEVELS - 1)).astype(np.uint8)).convert("P")
    steps = np.linspace(0, 1, HEAT_LEVELS)
    levels.putpalette(HEAT_COLOUR * HEAT_LEVELS)
    return encode(
        levels, transparency=bytes(np.rint(255 * MAX_HEAT * steps).astype(np.uint8)), bits=4
    )


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> str:
    """Encode an image as a data URI; the options are Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


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


def galleries_of(
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
