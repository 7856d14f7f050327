"""The trained model directory of the best epoch."""

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import Any

from train_pytorch_model.datasets.one_folder import SPLIT, Parts, write_split
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats import schema, trained_directory, writing
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER
from train_pytorch_model.formats.trained_directory import MANIFEST, REPORT, write_manifest
from train_pytorch_model.formats.writing import copy_tree, sync_folder, sync_tree, write_json
from train_pytorch_model.image_classifier.decoding import MAX_WHITE
from train_pytorch_model.image_classifier.predictions import KNOWN, known_json
from train_pytorch_model.image_classifier.weights import write_state_dict
from train_pytorch_model.inputs.unreadable_images import UNREADABLE_IMAGES, UnreadableImage
from train_pytorch_model.machine.console import logger
from train_pytorch_model.publishing.examine import Examination
from train_pytorch_model.publishing.model_card import write_mlflow_model
from train_pytorch_model.publishing.run import Run
from train_pytorch_model.quality.perceptual_hash import IMAGE_HASHES
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.state import State

ROOM_BYTES = 64 << 20  # for all files but the weights


def publish(run: Run, state: State, examination: Examination | None, report: str) -> None:
    """Write the trained directory of the best epoch, with the report if there is one.

    The logits of its model are those of the best epoch, divided by the temperature of the
    examination. It is built in a local folder and then copied: the output may be on mounted
    storage. An unfinished output of this run is replaced. Raises `OutputDirectoryError` if it
    cannot be written.
    """
    where = _local_folder(run, state)
    built = where / f"train_pytorch_model-{run.token}"
    try:
        try:
            rmtree(built, ignore_errors=True)  # which an earlier start may have left
            built.mkdir(mode=0o700)
            meta = _build(built, run.plan, state, examination, report)
            write_manifest(built, run.plan.fingerprint)
        except OSError as error:
            raise OutputDirectoryError(f"The model cannot be built in {where}: {error}.") from error
        with writing_directory(run.output, meta, OUTPUT_PARAMETER, run.token) as root:
            copy_tree(built, root, last=MANIFEST)
            sync_folder(root)
    finally:
        rmtree(built, ignore_errors=True)
    sync_tree(run.output)
    sync_folder(run.output.parent)  # from here on, the run folder is no longer needed


def _local_folder(run: Run, state: State) -> Path:
    """The temporary folder if the model fits there, or else the run's own, which is where the
    output is.
    """
    needed = sum(value.nbytes for value in state.best.weights.values()) + ROOM_BYTES
    with suppress(OSError):  # there is none, or it is gone
        if disk_usage(tempfile.gettempdir()).free > needed:
            return Path(tempfile.gettempdir())
    return run.folder.root


def _build(
    root: Path, plan: Plan, state: State, examination: Examination | None, report: str
) -> dict[str, Any]:
    """Write all files but the manifest and `_meta.yaml`; returns the content of that.

    Raises `OSError`.
    """
    inputs = plan.inputs
    model, decided, categories = inputs.model, inputs.recipe, inputs.categories
    weights = state.best.weights
    if examination and examination.temperature.value != 1:
        last_layer = {f"{plan.head}.weight", f"{plan.head}.bias"}
        temperature = examination.temperature.value
        weights = {
            name: each / temperature if name in last_layer else each
            for name, each in weights.items()
        }
    write_state_dict(root / MODEL, weights)
    meta = write_spec(
        root,
        architecture=model.architecture,
        option=model.option,
        is_pretrained=False,  # loading it downloads nothing
        # Entries that depend on the images and the number of epochs are decided anew by another
        # training.
        recipe=replace(
            model.recipe,
            image_size=decided.image_size,
            crop_fraction=decided.crop_fraction,
            framing=decided.framing,
            white_level=None if decided.white_level == MAX_WHITE else decided.white_level,
            mean=decided.mean,
            std=decided.std,
        ),
        categories=categories,
    )
    write_json(root / schema.SCHEMA, schema.image_schema(categories))
    write_json(root / schema.SAMPLES, samples_of(inputs.training))
    write_mlflow_model(root, plan, state)
    if inputs.test is not None:
        write_split(root / SPLIT, Parts(inputs.training, inputs.validation, inputs.test))
    if state.progress.unreadable_images:
        rows = writing.table_of(UnreadableImage, state.progress.unreadable_images)
        writing.write_csv(root / UNREADABLE_IMAGES, rows)
    trained_directory.write_metrics(root / trained_directory.METRICS, state.progress.history)
    if examination:
        if len(examination.energies):
            (root / KNOWN).write_text(known_json(examination.energies), encoding="ascii")
        for name, table in examination.tables.items():
            (root / name).write_text(table, encoding="utf-8")
        if examination.training_hashes.any():
            (root / IMAGE_HASHES).write_bytes(examination.training_hashes.tobytes())
    if report:
        try:
            (root / REPORT).write_text(report, encoding="utf-8")
        except OSError as error:  # the model does not need it
            with suppress(OSError):
                (root / REPORT).unlink(missing_ok=True)
            logger.warning(
                f"{REPORT} cannot be written: {error.strerror}. The model is not affected."
            )
    return meta


def samples_of(images: ImageDirectory) -> list[dict[str, Any]]:
    """The first rows for `_samples.json`; none, with a warning, if they can no longer be read."""
    paths = (images.path(index) for index in range(len(images)))
    try:
        return schema.image_samples(
            zip(paths, (row for _, row in images.read_rows()), strict=False)
        )
    except (
        Exception
    ) as error:  # the list may have changed during training; the model does not need it
        reason = str(error).removesuffix(".")
        logger.warning(f"{schema.SAMPLES} shows no images: {reason}. The model is not affected.")
        return []
