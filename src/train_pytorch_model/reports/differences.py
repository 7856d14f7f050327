"""The images on which two models differ, as pictures."""

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.comparison import Comparison
from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.reports.gallery import Card, Fact, Gallery
from train_pytorch_model.reports.pictures import thumbnail

MAX_SHOWN = 24


def differences_gallery(
    comparison: Comparison, evaluated: EvaluatedImages, colours: Colours
) -> list[Gallery]:
    """Return the images on which just one model is right; no gallery if there is none.

    Those on which the wrong one is most confident come first.
    """
    rows = comparison.differing
    if not len(rows):
        return []
    first = evaluated.outcomes
    second = comparison.evaluated.outcomes
    assert isinstance(first, Outcomes), "models of several categories are not compared"
    assert isinstance(second, Outcomes)
    wrong: np.ndarray = np.where(
        first.is_hit[rows], second.confidences[rows], first.confidences[rows]
    )
    shown = rows[np.argsort(-wrong, kind="stable")][:MAX_SHOWN]
    predictions = zip(
        evaluated.predictions(shown), comparison.evaluated.predictions(shown), strict=True
    )
    cards = [
        Card(
            pictures=[thumbnail(evaluated.images.root / this.file_name, colours)],
            facts=[
                Fact("true", this.category),
                Fact("this model", this.predicted, f"{this.confidence:.1%}"),
                Fact("the other", other.predicted, f"{other.confidence:.1%}"),
            ],
            files=[this.original or this.file_name],
        )
        for this, other in predictions
    ]
    text = f"Just one of the two models is right on {counted(len(rows), 'image', 'images')}."
    if len(rows) > MAX_SHOWN:
        text += f" Shown are the {MAX_SHOWN} with the most confident mistakes."
    return [Gallery("differences", "Where the models differ", text, cards)]
