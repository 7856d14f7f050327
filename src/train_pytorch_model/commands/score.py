"""`score`: predict the images of a folder."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from train_pytorch_model.config.options import OptionalInt, Switch, arguments_of, shown_as
from train_pytorch_model.config.wording import (
    bulleted,
    counted,
    display_name,
    out_of_range,
    parameter,
    visible,
)
from train_pytorch_model.datasets.conversion import unpacked
from train_pytorch_model.distributed.processes import on_this_host, run_in_processes
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.formats.replacing import SCORED
from train_pytorch_model.image_classifier import predictions
from train_pytorch_model.inputs import scoring
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.inputs.unreadable_images import UNREADABLE_IMAGES
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.machine.launch import rank_of

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World
    from train_pytorch_model.stories.score import ScoreSummary


MAX_SHOWN = 32  # characters of a name, so that a row fits into 80


@dataclass(frozen=True, kw_only=True)
class OnImages:
    """Abstract. A verb that predicts the images of a dataset, and writes about them."""

    trained_model: Path
    """Trained model directory, as written by train."""
    dataset: Path

    def predict(
        self,
        verb: str,
        story: "Callable[[ScoringInputs, World], None]",
        open_inputs: Callable[[Path, Path], ScoringInputs],
        output_name: str,
        kind: str,
        *,
        overwrite: bool,
        quiet: bool,
    ) -> None:
        """Run the story on the inputs, unpacked if necessary.

        `output_name` is a field, whose directory will be of this `kind`.
        """
        is_main = rank_of(os.environ) == 0
        output = getattr(self, output_name)
        set_up(is_main, quiet)
        check_apart(output, output_name, self.dataset, "dataset")

        def open_and_check() -> ScoringInputs:
            inputs = open_inputs(self.trained_model, path)
            check_output(output, output_name, is_main, kind=kind, overwrite=overwrite)
            return inputs

        def story_on_this_host(inputs: ScoringInputs, world: "World") -> None:
            model = on_this_host(inputs.model, self.trained_model)
            images = on_this_host(inputs.images, path if path.is_dir() else path.parent)
            story(replace(inputs, model=model, images=images), world)

        with unpacked(self.dataset, scoring.DATASET, output, output_name) as path:
            arguments = [verb, *arguments_of(replace(self, dataset=path))]
            run_in_processes(story_on_this_host, open_and_check, arguments, {})


@dataclass(frozen=True, kw_only=True)
class Score(OnImages):
    """Predict the category of every image in a directory or an archive, or of one image.

    Uses all GPUs by default. Also runs under torchrun and as an Azure ML job."""

    EXAMPLE = "--trained-model trained --dataset flowers/new --scored-dataset scores"

    dataset: Path
    (
        "Images, labelled or not: a folder at any depth, an ImageDirectory, an archive, or a"
        " single image."
    )
    scored_dataset: Path
    """Directory for _data.parquet and scores.csv; must be new or empty."""
    top_k: OptionalInt = None
    """Number of most probable categories per image in scores.csv. By default all."""
    embeddings: Annotated[Literal["float32", "float16"] | None, shown_as("float32|float16")] = None
    (
        "Also write embeddings.parquet: the features of each image before the last layer, in this"
        " type."
    )
    rank_by: Annotated[Literal["uncertainty"] | None, shown_as("uncertainty")] = None
    (
        "Also write to_label.csv: which images to label next, of those without a category of the"
        " model."
    )
    num_to_label: int = 1000
    """Number of images in to_label.csv."""
    unknown: Switch = False
    """Label images `unknown` that are less like the training images than most validation images."""
    known_fraction: float = predictions.DEFAULT_KNOWN_FRACTION
    """With --unknown, the fraction of the validation images that would not be unknown."""
    overwrite: Switch = False
    """Replace the scores in the output, if it is whole, once the new one is complete."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Score the images, and print the accuracy if they are labelled."""
        self._check_numbers()
        self._threshold()
        self.predict(
            "score",
            self._score,
            self._open,
            "scored_dataset",
            SCORED,
            overwrite=self.overwrite,
            quiet=self.quiet,
        )

    def _open(self, trained_model: Path, dataset: Path) -> ScoringInputs:
        """Open both. Raises what `open_scoring_inputs` raises, and `ParameterError`."""
        inputs = scoring.open_scoring_inputs(trained_model, dataset)
        if self.unknown:
            with self._refusing_unknown():
                predictions.check_unknown_label(inputs.spec.categories)
        return inputs

    def _check_numbers(self) -> None:
        """Raise `ParameterError` for the first number that is out of range."""
        if self.top_k is not None:
            _require(self.top_k > 0, "top_k", "greater than 0", self.top_k)
        _require(self.num_to_label > 0, "num_to_label", "greater than 0", self.num_to_label)

    def _threshold(self) -> float:
        """Return the energy above which an image is unknown. Raises `ParameterError`."""
        if not self.unknown:
            return math.inf
        with self._refusing_unknown():
            return predictions.read_threshold(self.trained_model, self.known_fraction)

    @contextmanager
    def _refusing_unknown(self) -> Iterator[None]:
        """Raise `ParameterError` for an `UnknownError`, in a `with`."""
        try:
            yield
        except predictions.UnknownError as error:
            raise ParameterError(
                f"{parameter('unknown')} is not possible with {parameter('known_fraction')}"
                f" {self.known_fraction} and the model {self.trained_model}: {error}"
            ) from error

    def _score(self, inputs: ScoringInputs, world: "World") -> None:
        from train_pytorch_model.stories.score import ScoreOptions, score

        options = ScoreOptions(
            top_k=self.top_k,
            embeddings=self.embeddings,
            num_to_label=self.num_to_label if self.rank_by else 0,
            threshold=self._threshold(),
            overwrite=self.overwrite,
        )
        summary = score(inputs, self.scored_dataset, options, world)
        if summary is not None:
            self._log(summary)

    def _log(self, summary: "ScoreSummary") -> None:
        """Log the first predictions, the accuracy, and where the rest is."""
        _log_first(summary)
        if summary.labelled:
            labelled = counted(summary.labelled, "image", "images")
            accuracy = summary.correct / summary.labelled
            measure = summary.measure.capitalize()
            logger.info(f"{measure} {accuracy:.1%}: {summary.correct:,} of {labelled}")
        images = counted(summary.images, "image", "images")
        if self.unknown:
            logger.info(f"Unknown: {summary.strange:,} of {images}")
        if summary.unknown:
            number = counted(sum(summary.unknown.values()), "image is", "images are")
            names = [f"{name!r}: {count:,}" for name, count in summary.unknown.items()]
            logger.warning(
                f"{number} of a category that the model does not know, and not part of the"
                f" {summary.measure}:{bulleted(names)}"
            )
        where = f"The scores of {images} are in {self.scored_dataset}/scores.csv"
        if summary.unreadable:
            total = summary.images + summary.unreadable
            where += (
                f"; {summary.unreadable:,} of {total:,} images cannot be read: see"
                f" {UNREADABLE_IMAGES} there"
            )
        logger.info(where)


def _require(holds: bool, name: str, rule: str, value: int) -> None:
    """Raise `ParameterError` unless the rule about a parameter holds."""
    if not holds:
        raise ParameterError(out_of_range(display_name(name), rule, parameter(name), value))


def _log_first(summary: "ScoreSummary") -> None:
    """Log a table of the first files, and how many more there are."""
    files = [_end_of(file) for file, _, _ in summary.first]
    categories = [_end_of(category) for _, category, _ in summary.first]
    file_width = max(map(len, files), default=0)
    category_width = max(map(len, categories), default=0)
    for file, category, (*_, probability) in zip(files, categories, summary.first, strict=True):
        logger.info(f"  {file:{file_width}}  {category:{category_width}}  {probability:6.1%}")
    if summary.images > len(summary.first):
        logger.info(f"  … and {summary.images - len(summary.first):,} more")


def _end_of(name: str) -> str:
    """Return the end of a name that is too long for a column, in visible characters."""
    name = visible(name)
    return name if len(name) <= MAX_SHOWN else f"…{name[1 - MAX_SHOWN :]}"
