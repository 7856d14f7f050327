"""Two models on the same images: their metrics side by side, and whether they tell them apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.quality.paired_test import PairedTest, compare_hits


@dataclass(frozen=True)
class Comparison:
    """Another model's evaluation on the same images."""

    name: str  # of the other model
    evaluation: Evaluation
    evaluated: EvaluatedImages  # in the order of the first model's
    test: PairedTest  # the first model is the one that is evaluated
    differing: np.ndarray  # (D,), int64: rows of the images on which just one model is right

    def describe(self) -> str:
        """Return who is better, and how sure that is, without the other model's name."""
        test = self.test
        if not len(self.differing):
            return "Both models are right on the same images: these cannot tell which is better."
        counts = (
            f"This model alone is right on {counted(test.only_first, 'image', 'images')}, the other"
            f" alone on {test.only_second:,}. {test.about_chance()}: "
        )
        if not test.is_telling:
            return f"{counts}these images do not tell which one is better."
        return f"{counts}{'the other' if test.gain > 0 else 'this'} model is better."

    def rows(self, evaluation: Evaluation) -> list[tuple[str, str, str]]:
        """Return the name of each main metric, and its text for both models."""
        both = (evaluation, self.evaluation)
        texts = [
            ("Accuracy", [f"{one.accuracy:.1%}" for one in both]),
            ("95% interval", ["{:.1%} to {:.1%}".format(*one.accuracy_interval) for one in both]),
            ("Balanced accuracy", [f"{one.balanced_accuracy:.1%}" for one in both]),
            ("Macro F1", [f"{one.macro.f1:.3f}" for one in both]),
            ("Loss", [f"{one.loss:.3f}" for one in both]),
            ("Calibration error", [f"{one.calibration.error:.1%}" for one in both]),
        ]
        return [(name, first, second) for name, (first, second) in texts]

    def entries(self) -> dict[str, Any]:
        """Return what metrics.json says."""
        return {
            "model": self.name,
            "accuracy": self.evaluation.accuracy,
            "accuracy_interval": self.evaluation.accuracy_interval,
            "balanced_accuracy": self.evaluation.balanced_accuracy,
            "macro_f1": self.evaluation.macro.f1,
            "loss": self.evaluation.loss,
            "expected_calibration_error": self.evaluation.calibration.error,
            "only_this_is_right": self.test.only_first,
            "only_the_other_is_right": self.test.only_second,
            "p_value": self.test.p_value,
        }


def compare_evaluations(
    name: str, evaluated: EvaluatedImages, other: EvaluatedImages, evaluation: Evaluation
) -> Comparison:
    """Return the comparison with another model, whose `evaluation` is of the same images."""
    first = evaluated.outcomes.is_hit
    second = other.outcomes.is_hit
    differing = np.flatnonzero(first != second)
    return Comparison(name, evaluation, other, compare_hits(first, second), differing)
