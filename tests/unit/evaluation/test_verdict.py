"""What an evaluation means, in a sentence or two."""

from collections.abc import Sequence

import numpy as np
import pytest

from train_pytorch_model.evaluation.metrics import Evaluation, evaluate, outcomes_of
from train_pytorch_model.evaluation.single_label_words import describe_baseline
from train_pytorch_model.evaluation.verdict import describe_trust, verdict

NAMES = ("ant", "bee", "fly", "wasp", "tick")


def evaluation_of(confusion: Sequence[Sequence[int]]) -> Evaluation:
    """An evaluation with this matrix of true by predicted categories."""
    matrix = np.array(confusion)
    targets, predicted = (
        np.repeat(indices.ravel(), matrix.ravel()) for indices in np.indices(matrix.shape)
    )
    return evaluate(outcomes_of(targets, np.eye(len(matrix))[predicted]), len(matrix))


def test_the_baseline_is_the_largest_category() -> None:
    evaluation = evaluation_of([[1, 1, 0], [0, 6, 0], [0, 2, 0]])
    assert evaluation.baseline == 0.6
    assert describe_baseline(evaluation, NAMES).endswith("'bee'")


def test_only_an_accuracy_above_chance_is_better_than_guessing() -> None:
    assert evaluation_of([[45, 15], [5, 55]]).is_better_than_guessing
    assert not evaluation_of([[4, 1], [2, 3]]).is_better_than_guessing


@pytest.mark.parametrize(
    ("confusion", "start", "parts"),
    [
        ([[60, 0], [0, 60]], "Good: 100.0%, 120 of 120.", ()),
        ([[60, 0], [6, 54]], "Good: 95.0%, 114 of 120; weakest: 'bee', 54 of 60.", ()),
        (
            [[45, 15], [5, 55]],
            "Better than guessing: 83.3%, 100 of 120, against 50.0%; weakest: 'ant'",
            (),
        ),
        (
            [[95, 0], [5, 0]],
            "The model is no better than guessing: 95.0%, 95 of 100;",
            ("gives 95.0%.", "1 of 2 categories is never predicted: 'bee'."),
        ),
        ([[950, 0], [40, 10]], "The model may be no better than guessing: 96.0%", ()),
        (
            [[9000, 0], [300, 700]],
            "Better than guessing: 97.0%",
            ("weakest: 'bee', 700 of 1,000.",),
        ),
        (
            [
                [30, 0, 0, 0, 0],
                [5, 25, 0, 0, 0],
                [30, 0, 0, 0, 0],
                [30, 0, 0, 0, 0],
                [0, 30, 0, 0, 0],
            ],
            "Better than guessing: 36.7%",
            ("3 of 5 categories are never predicted: 'fly', 'wasp', 'tick'.",),
        ),
        (
            [[50, 0, 0, 0, 0]] * 5,
            "The model is no better than guessing",
            ("4 of 5 categories are never predicted: 'bee', 'fly', 'wasp' and 1 more.",),
        ),
        ([[4, 1], [2, 3]], "The model may be no better", ("On 10 images", "from 40% to 89%.")),
        ([[5, 1], [0, 0]], "All images are of one category, 'ant'", ()),
    ],
)
def test_a_verdict_says_what_the_numbers_mean(
    confusion: Sequence[Sequence[int]], start: str, parts: Sequence[str]
) -> None:
    sentence = verdict(evaluation_of(confusion), NAMES)
    assert sentence.startswith(start)
    assert all(part in sentence for part in parts)
    assert ("never predicted" in sentence) == any("never predicted" in part for part in parts)
    assert ("next to nothing" in sentence) == any("On " in part for part in parts)


def test_a_long_or_strange_name_is_bounded() -> None:
    sentence = verdict(evaluation_of([[0, 60], [0, 60]]), ["x" * 1000, "\u202eb"])
    assert len(sentence) < 400
    assert "\u202e" not in sentence


@pytest.mark.parametrize(
    ("images", "confidence", "sentence"),
    [
        (8, 0.9, "8 images are too few to say whether the model's probabilities can be taken at"),
        (
            400,
            0.78,
            "The model's probabilities can be taken at their word: on average it is 78% sure",
        ),
        (400, 0.95, "The model's probabilities promise too much: on average it is 95% sure, and"),
        (
            400,
            0.55,
            "The model's probabilities are too modest: on average it is 55% sure, and right",
        ),
    ],
)
def test_whether_probabilities_can_be_taken_at_their_word(
    images: int, confidence: float, sentence: str
) -> None:
    is_hit = np.arange(images) % 4 > 0  # three quarters
    targets = np.where(is_hit, 0, 1)
    probabilities = np.tile([confidence, 1 - confidence], (images, 1))
    trust = describe_trust(evaluate(outcomes_of(targets, probabilities), 2))
    assert trust.startswith(sentence)
    assert images == 8 or trust.endswith("right in 75% of the images.")
