"""Decided recipes for tests."""

from typing import Any

from tests.model_directories import HALF
from train_pytorch_model.config.recipe import DecidedRecipe


def decided_recipe(**entries: Any) -> DecidedRecipe:
    """A recipe to train with: images of 32 x 48 px, mirrored, otherwise as they are."""
    defaults: dict[str, Any] = {
        "image_size": (32, 48),
        "training_size": (32, 48),
        "early_size": (32, 48),
        "crop_fraction": 1.0,
        "framing": "crop",
        "augmentation": "none",
        "crop_area": 0.08,
        "horizontal_flip": True,
        "label_smoothing": 0.0,
        "cutmix": 0.0,
        "balance_classes": False,
        "freeze_backbone": False,
        "deterministic": False,
        "white_level": 65_535,
        "background": (255, 255, 255),
        "optimizer": "auto",
        "precision": "auto",
        "mean": HALF,
        "std": HALF,
    }
    return DecidedRecipe(**defaults | entries)
