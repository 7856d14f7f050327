"""What is reviewed, and what a model says of it, without images or weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.model_directories import HALF, write_model
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.datasets.reviewed_images import ReviewedImages
from train_pytorch_model.formats.image_directory import images_of
from train_pytorch_model.formats.listing import list_unlabelled
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.reviewing.inputs import Predicted, ReviewInputs


def review_inputs(
    root: Path, files: Sequence[str], class_indices: np.ndarray, categories: tuple[str, ...]
) -> ReviewInputs:
    """Inputs of a folder `root` of these files, in natural order, and of a model beside it."""
    model = write_model(root.parent / "model", Recipe(mean=HALF, std=HALF), categories=categories)
    images = images_of(list_unlabelled(files, {}), root, "Dataset")
    scoring = ScoringInputs(
        model=open_model_directory(model, "Trained model"),
        images=images,
        spec=ClassifierSpec("resnet18", False, categories, Framing(16, 16, 1.0), HALF, HALF),
        size_reason="",
        unreadable_images=(),
        warnings=(),
        is_limited=False,
    )
    reviewed = ReviewedImages(images, categories, class_indices)
    return ReviewInputs(scoring, reviewed, earlier=None, size=10, folder=root.parent, command="")


def predicted_of(files: Sequence[str], probabilities: np.ndarray) -> Predicted:
    """What a model says of images that do not look alike, and of which it sees the probabilities.

    Probabilities are (N, C), float32.
    """
    random = np.random.default_rng(1)
    return Predicted(
        indices=np.arange(len(files)),
        names=files,
        probabilities=probabilities,
        features=probabilities,
        energies=np.zeros(len(files)),
        hashes=random.integers(0, 256, (len(files), 16), np.uint8),
    )
