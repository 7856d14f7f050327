"""The galleries of predictions, of suspects and of images that look alike."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import Evaluation, Outcomes
from train_pytorch_model.evaluation.tables import EvaluatedImages, Prediction
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.machine.launch import PROGRAM
from train_pytorch_model.quality.suspects import Suspect, about_suspects
from train_pytorch_model.quality.twins import TWINS, TwinRow
from train_pytorch_model.reports.gallery import HEAT_NOTE, Card, Fact, Gallery, Heat
from train_pytorch_model.reports.pictures import thumbnail

MAX_MISTAKES = 24  # with their pictures, about 4 kB each
MAX_UNCERTAIN = 6
MAX_RIGHT = 6
MAX_SUSPECTS = 12
MAX_TWINS = 12  # pairs
ABOUT_UNCERTAIN = (
    "The images with the lowest confidence, right or wrong. More training images that look like"
    " these would teach the model most."
)
ABOUT_RIGHT = "The most confident one of each category, as examples of what the model has learned."


def prediction_galleries(
    evaluation: Evaluation,
    evaluated: EvaluatedImages,
    colours: Colours,
    explain: Callable[[np.ndarray], Sequence[Heat | None]],
    where_all_are: str = "",
    shown_before: Collection[str] = (),
) -> list[Gallery]:
    """Return the most confident mistakes, the least certain predictions and some right ones.

    `explain` gives the heats of images by their indices, to lie over the mistakes and the least
    certain ones. `where_all_are` is the end of the sentence that says that only some mistakes are
    shown. No image is shown twice, nor one of those whose files were `shown_before`.
    """
    names = evaluated.images.file_names
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, Outcomes)

    def new(rows: np.ndarray, others: Collection[int] = ()) -> np.ndarray:
        is_new = [
            row not in others and names[index] not in shown_before
            for row, index in zip(rows.tolist(), evaluated.indices[rows].tolist(), strict=True)
        ]
        chosen: np.ndarray = rows[np.array(is_new, bool)]
        return chosen

    num_shown = len(evaluation.mistakes) - len(new(evaluation.mistakes))
    mistakes = new(evaluation.mistakes)[:MAX_MISTAKES]
    least_certain = np.argsort(outcomes.confidences, kind="stable")
    room = MAX_UNCERTAIN + len(mistakes) + len(shown_before)
    uncertain = new(least_certain[:room], mistakes.tolist())[:MAX_UNCERTAIN]
    explained = np.unique(np.concatenate([mistakes, uncertain]))
    heats = dict(
        zip(explained.tolist(), explain(evaluated.indices[explained]), strict=True),
    )

    def cards(rows: np.ndarray, heats: Mapping[int, Heat | None]) -> list[Card]:
        return [
            _prediction_card(prediction, evaluated.images, colours, heats.get(row))
            for prediction, row in zip(evaluated.predictions(rows), rows.tolist(), strict=True)
        ]

    has_heat = any(heats.values())
    about_mistakes = _about_mistakes(evaluation, where_all_are, has_heat, num_shown)
    surest = _surest_of_categories(evaluated)
    galleries = [
        Gallery("mistakes", "Most confident mistakes", about_mistakes, cards(mistakes, heats)),
        Gallery("uncertain", "Least certain predictions", ABOUT_UNCERTAIN, cards(uncertain, heats)),
        Gallery("right", "Right predictions", ABOUT_RIGHT, cards(surest[:MAX_RIGHT], {})),
    ]
    return [gallery for gallery in galleries if gallery.cards or gallery.id == "mistakes"]


def _surest_of_categories(evaluated: EvaluatedImages) -> np.ndarray:
    """Return (K,), int64: the most confident hit of each category, the most confident first."""
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, Outcomes)
    by_confidence = np.argsort(-outcomes.confidences, kind="stable")
    hits = by_confidence[outcomes.is_hit[by_confidence]]
    _, firsts = np.unique(outcomes.targets[hits], return_index=True)
    surest: np.ndarray = hits[np.sort(firsts)]
    return surest


def _about_mistakes(
    evaluation: Evaluation, where_all_are: str, has_heat: bool, num_shown_before: int
) -> str:
    num_mistakes = len(evaluation.mistakes)
    if num_mistakes == 0:
        return "None: every image was classified correctly."
    total = counted(evaluation.images, "image", "images")
    verb = "was" if num_mistakes == 1 else "were"
    text = f"{num_mistakes:,} of {total} {verb} misclassified."
    if num_shown_before:
        text += f" {num_shown_before:,} of them {_are(num_shown_before)} shown above."
    if num_mistakes - num_shown_before > MAX_MISTAKES:
        text += f" Shown are the {MAX_MISTAKES} with the highest confidence{where_all_are}."
    text += " The percentages are predicted probabilities. Check for wrong labels too."
    if has_heat:
        text += f" {HEAT_NOTE}"
    return text


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _prediction_card(
    prediction: Prediction, images: ImageDirectory, colours: Colours, heat: Heat | None
) -> Card:
    return Card(
        pictures=[thumbnail(images.root / prediction.file_name, colours)],
        facts=_facts(prediction),
        files=[prediction.original or prediction.file_name],
        heat=heat,
    )


def _facts(prediction: Prediction) -> list[Fact]:
    confidence = f"{prediction.confidence:.1%}"
    if prediction.category == prediction.predicted:
        return [Fact("right", prediction.category, confidence)]
    return [
        Fact("true", prediction.category, f"{prediction.category_probability:.1%}"),
        Fact("predicted", prediction.predicted, confidence),
    ]


def files_of_suspects(suspects: Sequence[Suspect], port: str) -> set[str]:
    """Return the files of one data set that `suspects_gallery` shows."""
    return {suspect.file for suspect in suspects[:MAX_SUSPECTS] if suspect.dataset == port}


@dataclass(frozen=True)
class Correcting:
    """How the labels of one kind of data sets are corrected, in words."""

    suspects: str
    twins: str  # after `the categories differ: `


ON_PAGE = Correcting(
    suspects=f"`python -m {PROGRAM} review MODEL --dataset FOLDER`, with this model and the folder"
    " of the images, makes a page on which they are corrected, and `--corrections` trains again"
    " with what was decided there.",
    twins="`review` shows both, and saves which one is right.",
)
IN_TABLE = Correcting(
    suspects="Correct what is wrong in the table of the images, and train again.",
    twins="correct the table of the images where one of them is wrong.",
)


def suspects_gallery(
    suspects: Sequence[Suspect],
    data_sets: Sequence[ImageDirectory],
    colours: Colours,
    correcting: Correcting = ON_PAGE,
) -> list[Gallery]:
    """Return the images of these data sets whose category is most probably wrong.

    There is no gallery if there is no such image.
    """
    roots = {images.port: images.root for images in data_sets}
    cards = [
        Card(
            pictures=[thumbnail(roots[suspect.dataset] / suspect.file, colours)],
            facts=[
                Fact("given", suspect.given, f"wrong with {suspect.wrong:.0%}"),
                Fact("rather", suspect.proposed),
                Fact("in", suspect.dataset.lower()),
            ],
            files=[suspect.original or suspect.file],
        )
        for suspect in suspects[:MAX_SUSPECTS]
    ]
    text = (
        f"{about_suspects(suspects)} The percentages say how probable that is."
        f" {correcting.suspects}"
    )
    return [Gallery("suspects", "Look at these first", text, cards)] if cards else []


def twins_gallery(
    rows: Sequence[TwinRow],
    data_sets: Sequence[ImageDirectory],
    colours: Colours,
    correcting: Correcting = ON_PAGE,
) -> list[Gallery]:
    """Return the first pairs of images that look alike; no gallery if there is none."""
    roots = {images.port: images.root for images in data_sets}
    cards = [
        Card(
            pictures=[
                thumbnail(roots[row.port] / row.file_name, colours),
                thumbnail(roots[row.other_port] / row.other_file_name, colours),
            ],
            facts=[
                Fact(_first_word(row.port), row.category),
                Fact(_first_word(row.other_port), row.other_category, row.kind),
            ],
            files=[row.file_name, row.other_file_name],
        )
        for row in rows[:MAX_TWINS]
    ]
    text = _about_twins(rows, correcting)
    return [Gallery("twins", "Images that look alike", text, cards)] if cards else []


def _about_twins(rows: Sequence[TwinRow], correcting: Correcting) -> str:
    """Return how many pairs there are, and what to do about each kind of them."""
    contradicting = sum(row.category != row.other_category for row in rows)
    shared = sum(row.category == row.other_category and row.port != row.other_port for row in rows)
    harmless = len(rows) - contradicting - shared
    sentences = [
        f"{counted(len(rows), 'pair of images looks', 'pairs of images look')} alike; `{TWINS}`"
        " lists them."
    ]
    if contradicting:
        sentences.append(
            f"In {counted(contradicting, 'pair', 'pairs')} the categories differ:"
            f" {correcting.twins}"
        )
    if shared:
        parts = " and ".join(dict.fromkeys(map(_first_word, _ports_of_shared(rows))))
        sentences.append(
            f"{counted(shared, 'pair is', 'pairs are')} in two parts, {parts}: what training has"
            " seen shows nothing new there, so the numbers are too good. Delete one file of each,"
            " or leave it to `fit` or `split` to divide the images, which keep them together."
        )
    if harmless:
        sentences.append(
            f"{counted(harmless, 'pair is', 'pairs are')} in one part and category: the image"
            " counts twice there, which does little harm."
        )
    return " ".join(sentences)


def _ports_of_shared(rows: Sequence[TwinRow]) -> Iterator[str]:
    for row in rows:
        if row.port != row.other_port:
            yield from (row.port, row.other_port)


def _first_word(port: str) -> str:
    """Return `training` for `Training dataset`."""
    return port.partition(" ")[0].lower()
