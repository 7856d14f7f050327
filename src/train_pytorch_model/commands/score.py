"""`score`: predict the category of images."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from train_pytorch_model.commands.processes import options_of, run_on_images
from train_pytorch_model.image_classifier.predictions import (
    DEFAULT_KNOWN_FRACTION,
    UnknownError,
    read_threshold,
)
from train_pytorch_model.inputs.opening import ScoringInputs, open_scoring_inputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.words.config import OptionalInt, Switch
from train_pytorch_model.words.errors import ParameterError, bulleted, out_of_range
from train_pytorch_model.words.wording import counted, parameter

MAX_EXPLAINED = 1000  # images on a page, about 5 kB each
MAX_SHOWN = 32  # characters of a name, so that a row fits into 80

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World


@dataclass(frozen=True, kw_only=True)
class Score:
    """Predict the category of every image in a directory or an archive, or of one image.

    Uses all GPUs by default. Also runs under torchrun and as an Azure ML job."""

    EXAMPLE: ClassVar[str] = "--trained-model trained --dataset flowers/new --scored-dataset scores"

    trained_model: Path
    """Trained model directory, as written by train."""

    dataset: Path
    """Images, labelled or not: a folder at any depth, an ImageDirectory, an archive, or a single image."""

    scored_dataset: Path
    """Directory for _data.parquet and scores.csv; must be new or empty."""

    top_k: OptionalInt = None
    """Number of most probable categories per image in scores.csv. By default all."""

    embeddings: Annotated[
        Literal["float32", "float16"] | None, tyro.conf.arg(metavar="float32|float16", help_behavior_hint="")
    ] = None
    """Also write embeddings.parquet: the features of each image before the last layer, in this type."""

    rank_by: Annotated[
        Literal["uncertainty"] | None, tyro.conf.arg(metavar="uncertainty", help_behavior_hint="")
    ] = None
    """Also write to_label.csv: which images to label next, of those without a category of the model."""

    num_to_label: int = 1000
    """Number of images in to_label.csv."""

    explain: int = 0
    """Also write explained.html: so many of the least certain images, and what spoke for their answers."""

    unknown: Switch = False
    """Label images `unknown` that are less like the training images than most validation images."""

    known_fraction: float = DEFAULT_KNOWN_FRACTION
    """With --unknown, the fraction of the validation images that would not be unknown."""

    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Score the images, and print the accuracy if they are labelled."""
        if self.top_k is not None and self.top_k < 1:
            raise ParameterError(out_of_range("Top k", "greater than 0", "--top-k", self.top_k))
        if self.num_to_label < 1:
            raise ParameterError(
                out_of_range("Num to label", "greater than 0", "--num-to-label", self.num_to_label)
            )
        if not 0 <= self.explain <= MAX_EXPLAINED:
            raise ParameterError(
                out_of_range("Explain", f"from 0 to {MAX_EXPLAINED:,}", "--explain", self.explain)
            )
        if self.unknown:
            self._threshold()
        run_on_images(
            self._score,
            lambda dataset: open_scoring_inputs(self.trained_model, dataset),
            lambda dataset: ["score", *options_of(replace(self, dataset=dataset))],
            trained_model=self.trained_model,
            dataset=self.dataset,
            output=self.scored_dataset,
            output_name="scored_dataset",
            quiet=self.quiet,
        )

    def _threshold(self) -> float:
        """The energy above which an image is unknown. Raises `ParameterError`."""
        if not self.unknown:
            return math.inf
        try:
            return read_threshold(self.trained_model, self.known_fraction)
        except UnknownError as error:
            raise ParameterError(
                f"{parameter('unknown')} is not possible with {parameter('known_fraction')}"
                f" {self.known_fraction} and the model {self.trained_model}: {error}"
            ) from error

    def _score(self, inputs: ScoringInputs, world: "World") -> None:
        from train_pytorch_model.stories.predict import ScoreOptions, score

        num_to_label = self.num_to_label if self.rank_by else 0
        options = ScoreOptions(self.top_k, self.embeddings, num_to_label, self.explain, self._threshold())
        scored = score(inputs, self.scored_dataset, options, world)
        if scored is None:
            return
        for line in table_of(scored.first):
            logger.info(line)
        if scored.images > len(scored.first):
            logger.info(f"  … and {scored.images - len(scored.first):,} more")
        if scored.labelled:
            labelled = counted(scored.labelled, "image", "images")
            logger.info(f"Accuracy {scored.correct / scored.labelled:.1%}: {scored.correct:,} of {labelled}")
        if self.unknown:
            logger.info(f"Unknown: {scored.strange:,} of {counted(scored.images, 'image', 'images')}")
        if scored.unknown:
            number = counted(sum(scored.unknown.values()), "image is", "images are")
            names = [f"{name!r}: {count:,}" for name, count in scored.unknown.items()]
            logger.warning(
                f"{number} of a category that the model does not know, and not part of the accuracy:"
                f"{bulleted(names)}"
            )
        if self.explain:
            logger.info(f"The least certain images are in {self.scored_dataset}/explained.html")
        images = counted(scored.images, "image", "images")
        logger.info(f"The scores of {images} are in {self.scored_dataset}/scores.csv")


def table_of(predictions: Sequence[tuple[str, str, float]]) -> Iterator[str]:
    """Yield a line for each (file, predicted category, probability), with the ends of long names."""
    rows = [(_end_of(name), _end_of(category), probability) for name, category, probability in predictions]
    name_width = max((len(name) for name, _, _ in rows), default=0)
    category_width = max((len(category) for _, category, _ in rows), default=0)
    for name, category, probability in rows:
        yield f"  {name:{name_width}}  {category:{category_width}}  {probability:6.1%}"


def _end_of(name: str) -> str:
    return name if len(name) <= MAX_SHOWN else f"…{name[1 - MAX_SHOWN :]}"
