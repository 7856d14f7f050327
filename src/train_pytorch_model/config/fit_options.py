"""The options of `fit`, on the command line and in Python."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.options import OptionalFloat, OptionalPath, Switch, shown_as
from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.config.train_config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class FitOptions(TableOptions, ModelOptions):
    """The options of `fit`, on the command line and in Python."""

    output: OptionalPath = None
    (
        "Directory for the trained model; must be new or empty. By default FOLDER-model, with"
        " --corrections FOLDER-corrected."
    )
    corrections: OptionalPath = None
    (
        "Table of decisions, as `review` saves it: other categories, and images to leave out. No"
        " image is changed."
    )
    group_by: Annotated[str | None, shown_as("REGEX|parent|none")] = None
    (
        "Of a folder without parts, keep images in one part whose names agree in what this regular"
        " expression matches, or in their folder; with none, not even those that look alike."
    )
    start_from: OptionalPath = None
    """Trained model to train further, on more images, categories or epochs; keeps its split."""
    minutes: OptionalFloat = None
    ("Find the network that suits these images best, and train it, all within so many minutes.")
    candidates: Annotated[tuple[str, ...], shown_as("NAME|DIRECTORY")] = ()
    (
        "With --minutes, the networks to choose from: architectures, and model directories. By"
        " default a few well-known ones."
    )
    from_scratch: Switch = False
    """Use no pretrained weights. By default they are used if they are here or can be downloaded."""
    parameters: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    fresh: Switch = False
    """Start over instead of resuming an interrupted run with this output."""
    overwrite: Switch = False
    """Replace the model in the output, if it is whole, by that of other images or options."""
    quiet: Switch = False
    """Print warnings and errors only."""
