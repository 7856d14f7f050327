"""Write the trained model directory, `_meta.yaml` last, once everything else is there."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage, rmtree
from tempfile import gettempdir
from typing import Any

from PIL import Image

from train_pytorch_model.datasets.one_folder import SPLIT, Parts, write_split
from train_pytorch_model.formats import schema
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.manifest import MANIFEST, write_manifest
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.run_folder import (
    AZUREML_MODEL,
    METRICS,
    MODEL_CARD,
    REPORT,
    TRAINED_MODEL,
    write_metrics,
)
from train_pytorch_model.formats.writing import copy_tree, sync_folder, sync_tree, write_json, write_yaml
from train_pytorch_model.image_classifier.decoding import MAX_WHITE, UnreadableImageError, decode, small_jpeg
from train_pytorch_model.image_classifier.unknown import KNOWN, known_json
from train_pytorch_model.image_classifier.weights import write_state_dict
from train_pytorch_model.inputs.bad_images import BAD_IMAGES, write_bad_images
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.inputs.twins import IMAGE_HASHES
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.loop.state import State
from train_pytorch_model.machine.console import logger
from train_pytorch_model.measures.suspects import SUSPECTS, suspects_csv
from train_pytorch_model.measures.twins import TWINS, twins_csv
from train_pytorch_model.networks.models import divide_head
from train_pytorch_model.stories.examine import Examined
from train_pytorch_model.stories.model_card import card, facts_of, registration
from train_pytorch_model.stories.run import Run
from train_pytorch_model.tracking.mlflow_model import save_model
from train_pytorch_model.words.errors import OutputDirectoryError

ROOM_BYTES = 64 << 20  # for all files but the weights


def publish(run: Run, state: State, examined: Examined | None, report: str) -> None:
    """Write the trained directory of the best epoch, with the report if there is one.

    The logits of its model are those of the best epoch, divided by the temperature of what is `examined`.

    It is built in a local folder and then copied: the output may be on mounted storage. An unfinished output
    of this run is replaced. Raises `OutputDirectoryError` if it cannot be written.
    """
    where = _local_folder(run, state)
    with ExitStack() as stack:
        try:
            built = stack.enter_context(_folder_of(where, run.token))
            meta = _build(built, run.plan, state, examined, report)
            write_manifest(built, run.plan.fingerprint)
        except OSError as error:
            raise OutputDirectoryError(f"The model cannot be built in {where}: {error}.") from error
        with writing_directory(run.output, meta, TRAINED_MODEL, run.token) as root:
            copy_tree(built, root, last=MANIFEST)
            sync_folder(root)
    sync_tree(run.output)
    sync_folder(run.output.parent)  # from here on, the run folder is no longer needed


def _local_folder(run: Run, state: State) -> Path:
    """The temporary folder if the model fits there, or else the run's own, which is where the output is."""
    needed = sum(value.nbytes for value in state.best.weights.values()) + ROOM_BYTES
    try:
        temporary = Path(gettempdir())
        return temporary if disk_usage(temporary).free > needed else run.folder.root
    except OSError:  # there is none, or it is gone
        return run.folder.root


@contextmanager
def _folder_of(where: Path, token: str) -> Iterator[Path]:
    """A folder for a `with`. It replaces one that an earlier start of the run has left."""
    folder = where / f"train_pytorch_model-{token}"
    rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def _build(
    root: Path, plan: Plan, state: State, examined: Examined | None, report: str
) -> Mapping[str, object]:
    """Write all files but the manifest and `_meta.yaml`; returns the content of that. Raises `OSError`."""
    inputs = plan.inputs
    model, decided, categories = inputs.model, inputs.recipe, inputs.categories
    weights = state.best.weights
    if examined and examined.temperature.value != 1:
        weights = divide_head(weights, plan.head, examined.temperature.value)
    write_state_dict(root / MODEL, weights)
    meta = write_spec(
        root,
        architecture=model.architecture,
        option=model.option,
        is_pretrained=False,  # loading it downloads nothing
        # Entries that depend on the images and the number of epochs are decided anew by another training.
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
    facts = facts_of(plan, state.best.metrics)
    save_model(root, inputs.spec, _example(inputs), facts)
    text = card(facts, categories, inputs.framing.height, inputs.framing.width)
    (root / MODEL_CARD).write_text(text, encoding="utf-8")
    write_yaml(root / AZUREML_MODEL, registration(facts, text))
    if inputs.test is not None:
        write_split(root / SPLIT, Parts(inputs.training, inputs.validation, inputs.test))
    if state.progress.bad_images:
        write_bad_images(root / BAD_IMAGES, state.progress.bad_images)
    write_metrics(root / METRICS, state.progress.history)
    if examined:
        _write_examined(root, examined)
    if report:
        _write_report(root / REPORT, report)
    return meta


def _write_examined(root: Path, examined: Examined) -> None:
    """Write suspects and twins, if any, and what later images are compared with."""
    if len(examined.energies):
        (root / KNOWN).write_text(known_json(examined.energies), encoding="ascii")
    if examined.suspects:
        (root / SUSPECTS).write_text(suspects_csv(examined.suspects), encoding="utf-8")
    if examined.twins.rows:
        (root / TWINS).write_text(twins_csv(examined.twins.rows), encoding="utf-8")
    if examined.training_hashes.any():
        (root / IMAGE_HASHES).write_bytes(examined.training_hashes.tobytes())


def samples_of(images: ImageDirectory) -> list[dict[str, Any]]:
    """The first rows for `_samples.json`; none, with a warning, if they can no longer be read."""
    paths = (images.path(index) for index in range(len(images)))
    try:
        return schema.image_samples(zip(paths, images.read_rows(), strict=False))
    except Exception as error:  # the list may have changed during training; the model does not need it
        reason = str(error).removesuffix(".")
        logger.warning(f"{schema.SAMPLES} shows no images: {reason}. The model is not affected.")
        return []


def _write_report(path: Path, report: str) -> None:
    try:
        path.write_text(report, encoding="utf-8")
    except OSError as error:  # the model does not need it
        with suppress(OSError):
            path.unlink(missing_ok=True)
        logger.warning(f"{path.name} cannot be written: {error.strerror}. The model is not affected.")


def _example(inputs: TrainingInputs) -> str:
    """A validation image, no larger than the model's input, as a base64-encoded JPEG."""
    framing = inputs.framing
    image = Image.new("RGB", (framing.width, framing.height))  # black, if none can be read any more
    for index in range(len(inputs.validation)):
        with suppress(UnreadableImageError):
            image = decode(inputs.validation.path(index), framing.short_side, framing.colours)
            break
    return base64.b64encode(small_jpeg(image, max(framing.height, framing.width))).decode()
