"""`fit`: from one folder of images to a trained model, tested on images that training has not seen.

PyTorch is loaded only when the images and the options have been checked.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from train_pytorch_model import __version__
from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.options import arguments_of
from train_pytorch_model.config.table_options import columns_of
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import flag, for_fit, parameter
from train_pytorch_model.datasets.conversion import is_archive
from train_pytorch_model.datasets.correcting import open_corrections
from train_pytorch_model.datasets.one_folder import Parts, open_parts
from train_pytorch_model.datasets.overview import describe_parts
from train_pytorch_model.datasets.split_table import SPLIT, describe_changes, read_split
from train_pytorch_model.datasets.unpacking import keep_unpacked
from train_pytorch_model.distributed.processes import run_in_processes
from train_pytorch_model.errors import (
    FailedToDownloadFilesError,
    InvalidDatasetError,
    ParameterError,
    UserError,
)
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.evaluation.race_table import log_race
from train_pytorch_model.evaluation.summary import log_summary
from train_pytorch_model.formats import listing
from train_pytorch_model.formats.failed_run import recorded_failures
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory
from train_pytorch_model.formats.outputs import check_apart, check_output, remove_empty
from train_pytorch_model.formats.race_record import RaceRecord, read_race
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.replacing import TRAINED
from train_pytorch_model.formats.run_folder import UNTRAINED, RunFolder
from train_pytorch_model.formats.table_files import SPREADSHEETS, is_table
from train_pytorch_model.formats.trained_directory import (
    EVALUATION,
    REPORT,
    published_fingerprint,
)
from train_pytorch_model.inputs import advice, opening, scoring
from train_pytorch_model.inputs.check_model_options import check_model_options
from train_pytorch_model.inputs.opening import CheckedImages, OpenedInputs
from train_pytorch_model.inputs.race_options import check_race_options
from train_pytorch_model.inputs.refuse_lists import refuse_lists
from train_pytorch_model.inputs.run_output import (
    is_complete,
    is_complete_or_replaced,
    prepare_output,
)
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.inputs.start_from import check_start_options, describe_start, open_start
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.machine.stop_requests import StopRequests, stop_requests
from train_pytorch_model.machine.time_limit import NO_LIMIT, TimeLimit
from train_pytorch_model.quality.suspects import SUSPECTS
from train_pytorch_model.quality.twins import TWINS

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World

OUTPUT = "output"
TEST_DATASET = "Test dataset"


@dataclass(frozen=True)
class Fitted:
    """What `fit` has made."""

    model: Path
    evaluation: AnyEvaluation | None
    """On images held out from training, if this process has just made it."""

    @property
    def review(self) -> str:
        """Return what `review` would show; empty for images with any number of categories."""
        if scoring.open_trained(self.model).answers.is_multi_label:
            return ""
        if any((self.model / name).exists() for name in (SUSPECTS, TWINS)):
            return "what looks wrong in the images: a page to correct it"
        return "the labels that the model doubts: a page to correct them"


def fit(
    folder: Path,
    options: FitOptions,
    stops: Callable[[], AbstractContextManager[StopRequests]] = stop_requests,
) -> Fitted:
    """Train a model, unless that is done, and evaluate it on images held out from training.

    Training is asked to stop through `stops`, by default with signals. Raises a `UserError`, such
    as `InvalidDatasetError`, and `FailedWorkersError` when the processes that it has started fail.
    """
    logger.info(f"Train PyTorch Model {__version__}")
    with for_fit():
        return _fit(folder, options, stops)


def _fit(
    folder: Path,
    options: FitOptions,
    stops: Callable[[], AbstractContextManager[StopRequests]],
) -> Fitted:
    began_at = time.monotonic()
    check_model_options(options)
    check_start_options(options)
    check_race_options(options)
    model = options.output or beside(folder, "corrected" if options.corrections else "model")
    check_apart(model, OUTPUT, folder, "folder")
    if is_archive(folder):
        check_apart(model, OUTPUT, beside(folder, "images"), "folder")

    def open_inputs() -> OpenedInputs | None:
        return _open(folder, model, options, began_at)

    def train_and_test(inputs: OpenedInputs, world: "World") -> AnyEvaluation | None:
        from train_pytorch_model.stories.train import train

        evaluation = None
        parameters = _parameters(options, inputs.race)
        if published_fingerprint(model) != inputs.fingerprint(parameters):
            test = None if inputs.test is None else partial(_test_before_publishing, inputs, world)
            evaluation = train(
                parameters,
                inputs,
                model,
                world,
                options.fresh,
                stops,
                test,
                options.overwrite,
                _time_limit(inputs, began_at),
            )
        if evaluation is None:
            evaluation = _test(inputs, model, world)
        if evaluation is not None:
            logger.info(f"On {evaluation.images:,} test images, held out from training:")
            log_summary(evaluation, inputs.categories, indent="  ")
        return evaluation

    arguments = ["fit", str(folder), *arguments_of(replace(options, output=model), FitOptions)]
    same = {"folder": str(folder), "parameters": " ".join(arguments_of(options.parameters))}
    with recorded_failures(model, rank_of(os.environ)):
        evaluation = run_in_processes(train_and_test, open_inputs, arguments, same)
    return Fitted(model, evaluation)


def _open(folder: Path, model: Path, options: FitOptions, began_at: float) -> OpenedInputs | None:
    """Open the images and make the untrained model; None if this same call has done everything."""
    corrections = open_corrections(options.corrections)
    earlier = _earlier_model(folder, model, options)
    images, archive = _images_of(folder)
    left_out: list[UnreadableImage] = []
    parts = open_parts(
        images,
        options.parameters.random_seed,
        columns_of(options),
        options.group_by or "",
        _earlier_split(options.start_from or earlier),
        corrections,
        left_out,
    )
    told = _tell(folder, parts)
    training, validation = opening.with_same_categories(parts.training, parts.validation)
    test = replace(parts.test, port=TEST_DATASET)
    scoring.check_test(training, test)

    run = RunFolder.beside(model)
    if not _is_complete(model):
        is_main = rank_of(os.environ) == 0
        check_output(
            model,
            OUTPUT,
            by_writing=is_main,
            token=run.token,
            kind=TRAINED,
            overwrite=options.overwrite,
        )
    checked = opening.check_images(training, validation)
    made_by = "" if options.start_from else _hash_of(options)
    if _is_done(model, checked, archive, made_by, options):
        run.remove()
        return None
    path = run.root / f"{UNTRAINED}{made_by[:16]}"
    with _made_for_this(path):
        untrained, record = _initial_model(options, checked, path, began_at)
        parameters = _parameters(options, record)
        inputs = opening.inputs_for(untrained, checked, parameters.epochs)
        made_with = _made_with(options, untrained)
        warnings = tuple(warning for warning in inputs.warnings if warning not in told)
        inputs = replace(
            inputs,
            test=test,
            made_by=made_by,
            made_with=made_with,
            archive=archive,
            warnings=warnings,
            unreadable_images=(*left_out, *inputs.unreadable_images),
            earlier=earlier,
            corrections=corrections.text if corrections else "",
            race=record,
        )
        compared = Parts(inputs.training, inputs.validation, parts.test)
        if prepare_output(
            model,
            inputs,
            parameters,
            options.fresh,
            name=OUTPUT,
            overwrite=options.overwrite,
            image_changes=lambda: describe_changes(read_split(model / SPLIT), compared),
        ):
            return inputs
    run.remove()  # the untrained model was only made to compare it
    return None if _is_complete(model / EVALUATION) else inputs


def _initial_model(
    options: FitOptions, checked: CheckedImages, path: Path, began_at: float
) -> tuple[ModelDirectory, RaceRecord | None]:
    """Return the model to start from, and the race that it has won, if there was one.

    It is the user's own, or made at `path`, unless it is there.
    """
    if options.start_from:
        start = open_start(options.start_from, options.recipe)
        logger.info(describe_start(start, checked.training.categories))
        return start, None
    if options.minutes is None:
        return _make_untrained(path, options), None
    refuse_lists(
        checked.training.labels,
        ParameterError(
            f"{parameter('minutes')} lets networks race by how often they find the one category of"
            f" an image; the images of {checked.training.root} have lists of categories. Leave it"
            f" out, and name one network with {parameter('architecture')}."
        ),
    )
    from train_pytorch_model.stories.race import race

    winner = race(options, checked, path, began_at)
    record = read_race(path)
    log_race(record)
    return winner, record


def _parameters(options: FitOptions, record: RaceRecord | None) -> TrainConfig:
    """Return the parameters of the training; after a race, with the epochs there is time for."""
    if record is None:
        return options.parameters
    return replace(options.parameters, epochs=max(1, record.epochs))


def _is_done(
    model: Path, checked: CheckedImages, archive: str, made_by: str, options: FitOptions
) -> bool:
    """Return whether the model is of this same call, as far as can be told without PyTorch.

    Raises `OutputDirectoryError` if it is of another race that is not to be replaced.
    """
    expected = {
        "untrained_model": made_by,
        "training_dataset": checked.training.fingerprint(),
        "validation_dataset": checked.validation.fingerprint(),
    }
    if archive:
        expected["archive"] = archive
    if options.minutes:
        expected["initial_model"] = _options_in_words(options)
        return is_complete_or_replaced(model, expected, OUTPUT, options.fresh, options.overwrite)
    expected["parameters"] = options.parameters.as_text()
    return _is_complete(model / EVALUATION) and is_complete(model, expected, options.fresh)


@contextmanager
def _made_for_this(untrained: Path) -> Iterator[None]:
    """Remove an untrained model that is made in a `with` that fails, with its folder if empty."""
    is_new = not untrained.exists()
    try:
        yield
    except BaseException:
        if is_new:
            rmtree(untrained, ignore_errors=True)
            remove_empty([untrained.parent])
        raise


def _tell(folder: Path, parts: Parts) -> set[str]:
    """Log how the folder is understood, and return the warnings that this included."""
    counts = ", ".join(f"{len(images):,} for {name}" for name, images in parts.by_name().items())
    logger.info(f"{folder}: {len(parts.training.categories):,} categories; images: {counts}")
    for line in describe_parts(parts):
        logger.info(line)
    warnings = [warning for images in parts.by_name().values() for warning in images.warnings()]
    warnings += advice.naming_warnings(parts.training.categories)
    for warning in warnings:
        logger.warning(warning)
    return set(warnings)


def _images_of(folder: Path) -> tuple[Path, str]:
    """Return the folder or the table of the images, and the sha256 of an archive, if it is one.

    Those of an archive are unpacked beside it.
    Raises `InvalidDatasetError`, `OutputDirectoryError`.
    """
    if not os.path.isfile(folder) or is_table(folder):
        return folder, ""
    if listing.suffix_of(folder.name) in SPREADSHEETS:
        raise InvalidDatasetError(
            f'{scoring.DATASET} "{folder}"',
            "it is a spreadsheet, which is not read.",
            "Save it as CSV in the same folder, and name that.",
        )
    images = beside(folder, "images")
    return images, keep_unpacked(folder, images)


def _hash_of(options: FitOptions) -> str:
    """Return the sha256 of the options that make the untrained model, which identify it."""
    made_by = {option.name: str(getattr(options, option.name)) for option in fields(ModelOptions)}
    made_by["from_scratch"] = str(options.from_scratch)
    made_by["seed"] = str(options.parameters.random_seed)
    if options.minutes:
        made_by |= _identity_of_race(options)
    return hashlib.sha256(repr(sorted(made_by.items())).encode()).hexdigest()


def _identity_of_race(options: FitOptions) -> dict[str, str]:
    """Return what tells a race from others: its options, and what directories hold."""
    directories = [Path(name) for name in options.candidates if os.path.isdir(name)]
    models = [open_model_directory(path, parameter("candidates")) for path in directories]
    return {
        "minutes": str(options.minutes),
        "candidates": " ".join(options.candidates),
        "directories": " ".join(model.sha256 for model in models),
        "parameters": str(options.parameters.as_flags()),
        "group_by": str(options.group_by),
    }


def _make_untrained(path: Path, options: FitOptions) -> ModelDirectory:
    """Return the untrained model of the options, which is written unless it is there."""
    if not _is_complete(path):
        _write_untrained(path, options)
    return open_model_directory(path, opening.UNTRAINED_MODEL)


def _earlier_split(start_from: Path | None) -> dict[str, str]:
    """Return the part of each image that a model to start from knows, by its file name."""
    if start_from is None:
        return {}
    rows = read_split(start_from / SPLIT)
    if not rows and start_from.is_dir():
        logger.warning(
            f"{start_from} has no {SPLIT}, so it may have been trained on images that are now held"
            " out: the evaluation may be too good."
        )
    return {row.file_name: row.part for row in rows}


def _earlier_model(folder: Path, model: Path, options: FitOptions) -> Path | None:
    """Return the model that corrections are about; None without corrections or such a model."""
    if options.corrections is None:
        return None
    earlier = [model, beside(folder, "model"), beside(folder, "corrected")]
    return next((path for path in earlier if _is_complete(path)), None)


def _made_with(options: FitOptions, initial: ModelDirectory) -> str:
    """Return these options for people, as far as the recipe does not have them."""
    if options.start_from:
        name = f"{initial.root.resolve().name}@{initial.sha256[:8]}"
        return f"{flag('start_from')} {name.replace(' ', '_')}"
    return _options_in_words(options)


def _options_in_words(options: FitOptions) -> str:
    """Return the options that make the untrained model, but for the recipe."""
    names = [option.name for option in fields(ModelOptions) if option.name != "recipe"]
    names.append("from_scratch")
    if options.minutes:
        names += ["minutes", "candidates"]
    values = {name: str(getattr(options, name)).replace(" ", "_") for name in names}
    return " ".join(f"{flag(name)} {value}" for name, value in values.items())


def _write_untrained(path: Path, options: FitOptions) -> None:
    """Write the untrained model, with pretrained weights unless the options say otherwise."""
    from train_pytorch_model.stories.init_model import initialize

    seed = options.parameters.random_seed
    names_its_weights = options.pretrained or options.weights or options.weights_file
    is_decided = bool(options.from_scratch or names_its_weights)
    with_weights = replace(options, pretrained=options.pretrained or not is_decided)
    try:
        initialize(with_weights, seed, path, shows_download=not options.quiet)
    except FailedToDownloadFilesError:
        if is_decided:
            raise
        logger.warning(
            "Pretrained weights are not here and cannot be downloaded; training from scratch, which"
            f" takes many more images and epochs. {parameter('weights_file')} names weights from"
            " elsewhere."
        )
        initialize(options, seed, path, shows_download=False)


def _time_limit(inputs: OpenedInputs, began_at: float) -> TimeLimit:
    """Return how long the training may take."""
    if inputs.race is None:
        return NO_LIMIT
    from train_pytorch_model.stories.race import time_limit

    num_test = 0 if inputs.test is None else len(inputs.test)
    return time_limit(inputs.race, len(inputs.validation) + num_test, began_at)


def _test_before_publishing(
    inputs: OpenedInputs, world: "World", model: Path, after_batch: Callable[[], None]
) -> AnyEvaluation | None:
    """Evaluate the model where it is built; None, with a warning, if that is not possible there."""
    try:
        return _test(inputs, model, world, after_batch)
    except UserError as error:
        logger.warning(f"The model cannot be tested before it is written: {error}")
        return None


def _test(
    inputs: OpenedInputs,
    model: Path,
    world: "World",
    after_batch: Callable[[], None] = lambda: None,
) -> AnyEvaluation | None:
    """Evaluate the model on the images that were held out, if any, on the main process."""
    if not world.is_main or inputs.test is None:
        return None
    from train_pytorch_model.stories.evaluate import Training, evaluate

    tested = scoring.evaluation_inputs(scoring.open_trained(model), inputs.test)
    alone = replace(world, size=1, local_size=1)  # the other processes are no longer needed
    training = Training(inputs.training, inputs.validation, f"../{REPORT}", inputs.race)
    evaluation = evaluate(tested, model / EVALUATION, alone, training, after_batch)
    if inputs.earlier is not None and isinstance(evaluation, Evaluation):
        _compare(inputs.earlier, tested, evaluation, model / EVALUATION, alone)
    return evaluation


def _compare(
    earlier: Path, tested: ScoringInputs, evaluation: Evaluation, root: Path, world: "World"
) -> None:
    """Say what corrections have bought; an earlier model that cannot be used is only a warning."""
    from train_pytorch_model.stories.improvement import tell_improvement

    try:
        tell_improvement(scoring.open_trained(earlier), tested, evaluation, root, world)
    except UserError as error:
        logger.warning(f"The earlier model cannot be compared: {error}")


def beside(folder: Path, suffix: str) -> Path:
    """Return the path of what is made of a folder, an archive or a table: beside it."""
    if not folder.name.strip("."):  # such as `..`
        folder = folder.resolve()
    name = folder.name
    if os.path.isfile(folder):
        name = name.partition(".")[0]
    return folder.parent / f"{name}-{suffix}"


def _is_complete(directory: Path) -> bool:
    """Return whether everything has been written to a directory of ours."""
    return (directory / META).exists()
