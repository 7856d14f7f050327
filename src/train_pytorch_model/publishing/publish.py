"""The trained model directory of the best epoch."""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import Any

import msgspec
import numpy as np
from torch import Tensor

from train_pytorch_model.datasets.one_folder import Parts
from train_pytorch_model.datasets.split_table import SPLIT, write_split
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.formats import schema, trained_directory, writing
from train_pytorch_model.formats.corrections import CORRECTIONS
from train_pytorch_model.formats.histograms import HISTOGRAMS, Histograms
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import unfinished_error, writing_directory
from train_pytorch_model.formats.race_record import write_record
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.replacing import (
    REPLACEMENT,
    check_replaceable,
    replace_directory,
)
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER
from train_pytorch_model.formats.trained_directory import MANIFEST, REPORT, write_manifest
from train_pytorch_model.formats.writing import (
    copy_tree,
    sync_folder,
    sync_tree,
    write_json,
    write_yaml,
)
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.colours import MAX_WHITE
from train_pytorch_model.image_classifier.predictions import KNOWN, known_json
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.image_classifier.weights import write_state_dict
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.inputs.unreadable_images import UNREADABLE_IMAGES, UnreadableImage
from train_pytorch_model.machine.console import logger
from train_pytorch_model.publishing.examine import Examination
from train_pytorch_model.publishing.falls import images_of_each
from train_pytorch_model.publishing.model_card import write_mlflow_model
from train_pytorch_model.publishing.run import Run
from train_pytorch_model.publishing.validation_histograms import Trial, validation_histograms
from train_pytorch_model.quality.perceptual_hash import IMAGE_HASHES
from train_pytorch_model.training.out_of_memory import is_out_of_memory
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.state import State

ROOM_BYTES = 64 << 20  # for all files but the weights


# Evaluates the model in a directory, into that directory; calls the function often, which may raise
# `StoppedError`. None if that is not possible.
Test = Callable[[Path, Callable[[], None]], AnyEvaluation | None]
# Tests the model in a directory, and returns its evaluation and the report, if there are any.
Finish = Callable[[Path], tuple[AnyEvaluation | None, str]]


def publish(
    run: Run, state: State, examination: Examination | None, finish: Finish
) -> AnyEvaluation | None:
    """Write the trained directory of the best epoch, and return its evaluation, if `finish` does.

    The logits of its model are those of the best epoch, divided by the temperature of the
    examination. It is built in a local folder, finished there and then copied: the output may be
    on mounted storage, and is complete with everything at once. An unfinished output of this run is
    replaced. Raises `OutputDirectoryError` if it cannot be written.
    """
    folder = _local_folder(run, state)
    built = folder / f"train_pytorch_model-{run.token}"
    try:
        try:
            rmtree(built, ignore_errors=True)  # which an earlier start may have left
            built.mkdir(mode=0o700)
            meta = _build(built, run.plan, state, examination)
            evaluation, report = _finish(built, meta, finish)
            if report:
                _write_report(built, report)
            write_manifest(built, run.plan.fingerprint)
        except OSError as error:
            raise OutputDirectoryError(
                f"The model cannot be built in {folder}: {error}."
            ) from error
        _write_output(run, built, meta)
    finally:
        rmtree(built, ignore_errors=True)
    sync_folder(run.output.parent)  # from here on, the run folder is no longer needed
    return evaluation


def _finish(
    built: Path, meta: Mapping[str, Any], finish: Finish
) -> tuple[AnyEvaluation | None, str]:
    """Return what `finish` does of a model that can be opened where it is built."""
    write_yaml(built / META, meta)
    try:
        return finish(built)
    finally:
        (built / META).unlink()  # it completes the directory, which is copied first


def _write_output(run: Run, built: Path, meta: Mapping[str, Any]) -> None:
    """Copy the directory to the output, or beside it to take the place of an earlier model."""
    replaces = run.overwrite and (run.output / META).exists()
    target = run.folder.root / REPLACEMENT if replaces else run.output
    if replaces:
        rmtree(target, ignore_errors=True)  # which an earlier start may have left
    with writing_directory(target, meta, OUTPUT_PARAMETER, run.token) as root:
        copy_tree(built, root, last=MANIFEST)
        sync_folder(root)
    sync_tree(target)
    if replaces:
        check_replaceable(run.output, OUTPUT_PARAMETER)
        try:
            replace_directory(run.output, target)
        except OSError as error:
            raise unfinished_error(target, OUTPUT_PARAMETER, error) from error


def _local_folder(run: Run, state: State) -> Path:
    """Return the temporary folder if the model fits there, or else the run's own.

    The latter is where the output is.
    """
    needed = sum(value.nbytes for value in state.best.weights.values()) + ROOM_BYTES
    with suppress(OSError):  # there is none, or it is gone
        if disk_usage(tempfile.gettempdir()).free > needed:
            return Path(tempfile.gettempdir())
    return run.folder.root


def _build(root: Path, plan: Plan, state: State, examination: Examination | None) -> dict[str, Any]:
    """Write all files but report, test, manifest and `_meta.yaml`; return the content of the last.

    Raises `OSError`.
    """
    inputs = plan.inputs
    write_state_dict(root / MODEL, _published_weights(plan, state, examination))
    spec = published_spec(inputs.spec, examination)
    meta = _write_spec(root, inputs, spec)
    content = schema.image_schema(inputs.categories, inputs.training.labels)
    write_json(root / schema.SCHEMA, content)
    write_json(root / schema.SAMPLES, samples_of(inputs.training))
    write_mlflow_model(root, plan, state, spec)
    if inputs.test is not None:
        write_split(root / SPLIT, Parts(inputs.training, inputs.validation, inputs.test))
    if inputs.corrections:
        (root / CORRECTIONS).write_text(inputs.corrections, encoding="utf-8", newline="\n")
    if inputs.race:
        write_record(root, inputs.race)
    if state.progress.unreadable_images:
        rows = writing.table_of(UnreadableImage, state.progress.unreadable_images)
        writing.write_csv(root / UNREADABLE_IMAGES, rows)
    trained_directory.write_metrics(root / trained_directory.METRICS, state.progress.history)
    if examination:
        _write_examination(root, examination)
        if len(examination.energies):
            histograms = _histograms(root, plan, state, spec, examination)
            (root / HISTOGRAMS).write_bytes(msgspec.json.encode(histograms))
    return meta


def _published_weights(
    plan: Plan, state: State, examination: Examination | None
) -> Mapping[str, Tensor]:
    """Return the weights of the best epoch, with the temperature in the last layer."""
    weights = state.best.weights
    if examination is None or examination.temperature.value == 1:
        return weights
    last_layer = {f"{plan.head}.weight", f"{plan.head}.bias"}
    temperature = examination.temperature.value
    return {
        name: value / temperature if name in last_layer else value
        for name, value in weights.items()
    }


def published_spec(spec: ClassifierSpec, examination: Examination | None) -> ClassifierSpec:
    """Return the specification of the model, with the thresholds that its examination has found."""
    return spec if examination is None else replace(spec, thresholds=examination.thresholds)


def _write_spec(root: Path, inputs: TrainingInputs, spec: ClassifierSpec) -> dict[str, Any]:
    """Write what the weights are of, and return the content of `_meta.yaml`.

    Of the recipe, what the weights depend on is as it was decided; what depends on the training
    images and the number of epochs is decided anew by another training.
    """
    model = inputs.model
    decided = inputs.recipe
    recipe = replace(
        model.recipe,
        image_size=decided.image_size,
        crop_fraction=decided.crop_fraction,
        framing=decided.framing,
        white_level=None if decided.white_level == MAX_WHITE else decided.white_level,
        mean=decided.mean,
        std=decided.std,
    )
    return write_spec(
        root,
        architecture=model.architecture,
        option=model.option,
        is_pretrained=False,  # loading it downloads nothing
        recipe=recipe,
        categories=inputs.categories,
        answers=spec.answers,
        weights_licence=model.weights_licence,
    )


def _write_examination(root: Path, examination: Examination) -> None:
    """Write what later tells whether images are like those of the training, and the tables."""
    if len(examination.energies):
        (root / KNOWN).write_text(known_json(examination.energies), encoding="ascii")
    for name, table in examination.tables.items():
        (root / name).write_text(table, encoding="utf-8")
    if examination.training_hashes.any():
        (root / IMAGE_HASHES).write_bytes(examination.training_hashes.tobytes())


def _histograms(
    root: Path, plan: Plan, state: State, spec: ClassifierSpec, examination: Examination
) -> Histograms:
    """Return what the validation images were like, and how the model copes with worse ones."""
    of_images = partial(validation_histograms, examination.evaluated, examination.energies, spec)
    try:
        return of_images(_trial(root, plan, state, spec))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        logger.warning(
            "Memory does not suffice to try the model on degraded images: the accuracy that `watch`"
            " estimates will be less certain. The model is not affected."
        )
        return of_images(None)


def _trial(root: Path, plan: Plan, state: State, spec: ClassifierSpec) -> Trial | None:
    """Return how degraded images are tried on the model in a directory; None if that is dear."""
    number = images_of_each(plan, len(state.progress.history))
    if not number:
        return None
    device = plan.world.device
    classifier = ImageClassifier.load(spec, root / MODEL, device)

    def predict(frames: Tensor) -> tuple[np.ndarray, np.ndarray]:
        with plan.precision.autocast(device):  # as fast as the training
            return classifier.predict(frames)

    return Trial(predict, number)


def _write_report(root: Path, report: str) -> None:
    try:
        (root / REPORT).write_text(report, encoding="utf-8")
    except OSError as error:  # the model does not need it
        with suppress(OSError):
            (root / REPORT).unlink(missing_ok=True)
        logger.warning(f"{REPORT} cannot be written: {error.strerror}. The model is not affected.")


def samples_of(images: ImageDirectory) -> list[dict[str, Any]]:
    """Return the first rows for `_samples.json`; none, with a warning, if they cannot be read."""
    paths = (images.path(index) for index in range(len(images)))
    try:
        rows = (row for _, row in images.read_rows())
        return schema.image_samples(zip(paths, rows, strict=False))
    except Exception as error:  # the list may have changed during training
        reason = str(error).removesuffix(".")
        logger.warning(f"{schema.SAMPLES} shows no images: {reason}. The model is not affected.")
        return []
