"""A run, from its folder beside the output to the trained model directory that it publishes.

The facts in the `metadata` of the MLmodel, and a card for people, say what the model is, and how
good. Azure ML reads neither when it registers a model, but does so from the YAML that
`registration` returns.
"""

import base64
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import Any

from PIL import Image

from train_pytorch_model import __version__
from train_pytorch_model.datasets.one_folder import SPLIT, Parts, write_split
from train_pytorch_model.formats import image_list, run_folder, writing
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import MODEL, write_spec
from train_pytorch_model.formats.outputs import check_output, writing_directory
from train_pytorch_model.formats.run_folder import (
    MANIFEST,
    REPORT,
    TRAINED_MODEL,
    RunFolder,
    write_manifest,
)
from train_pytorch_model.formats.run_lock import run_lock
from train_pytorch_model.formats.writing import (
    copy_tree,
    sync_folder,
    sync_tree,
    write_json,
    write_yaml,
)
from train_pytorch_model.image_classifier.decoding import (
    MAX_WHITE,
    UnreadableImageError,
    decode,
    small_jpeg,
)
from train_pytorch_model.image_classifier.predictions import KNOWN, known_json
from train_pytorch_model.image_classifier.weights import write_state_dict
from train_pytorch_model.inputs.bad_images import BAD_IMAGES, BadImage
from train_pytorch_model.inputs.twins import IMAGE_HASHES
from train_pytorch_model.loop.checkpoint import Checkpoint, save_checkpoint
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.loop.state import State
from train_pytorch_model.machine.console import logger
from train_pytorch_model.measures.evaluation import confidence_interval
from train_pytorch_model.stories.report import Examined
from train_pytorch_model.tracking.tracker import earlier_copies, earlier_epochs
from train_pytorch_model.words.errors import OutputDirectoryError, counted

ROOM_BYTES = 64 << 20  # for all files but the weights
# Facts that a model registered in Azure ML has as tags.
_TAGS = ("task", "base_model_name", "num_categories", "validation_accuracy", "validation_images")
_CARD = """\
# Image classifier: {base_model_name}, {num_categories} categories

| | |
|---|---|
| architecture | {base_model_name} |
| input | images of any size, seen at {height} x {width} px |
| validation accuracy | {validation_accuracy:.1%} of {images} |
| its 95 % confidence interval | {lowest:.1%} to {highest:.1%} |
| validation loss | {validation_loss:.4f} nats, the lowest of its epochs |
| trained on | {trained_on} |
| parameters | `{parameters}` |
| recipe | `{recipe}` |
| training data, sha256 of names and categories | `{training_data}` |
| made with | Train PyTorch Model {version} |

Categories: {categories}.

How to call it: a table with base64-encoded image files in a column `image`, as
`{{"dataframe_split": {{"columns": ["image"], "data": [["<base64>"]]}}}}` to MLflow's server and
`{{"input_data": {{"columns": ["image"], "data": [["<base64>"]]}}}}` to an endpoint of Azure ML. The answer
has a column `Scored Probabilities_<category>` for each category, `Scored Labels`, and `error` for an image
that cannot be read. Validation chose the epoch: on other images the accuracy may be lower.
"""


@dataclass(frozen=True)
class Run:
    """A run that has begun. Only the main process writes its folder."""

    plan: Plan
    output: Path
    folder: RunFolder
    # Identifies this run in what it leaves elsewhere; empty on all processes but the main one.
    token: str

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint. Raises `OSError`; a copy that cannot be written is only a warning."""
        save_checkpoint(self.folder.checkpoints, checkpoint)
        try:
            self.folder.copy_to_output(self.token)
        except OSError as error:
            logger.warning(f"{self.output} does not take a copy of the checkpoints: {error}.")

    def keep_history(self, state: State) -> None:
        """Write the metrics of the completed epochs; a failure is only a warning."""
        if not self.plan.world.is_main:
            return
        try:
            self.folder.keep(self.plan.fingerprint, self.token, state.progress.history)
        except (
            OSError
        ) as error:  # all of them are written again after the next epoch, and with the model
            logger.warning(
                f"{self.folder.root} cannot be written: {error.strerror}. Training continues."
            )

    def how_to_recover(self, unsaved: Checkpoint | None) -> str:
        """What to do about a model that could not be written: where its checkpoint is, and what to
        run.
        """
        retry = "The same command writes it without training again."
        if unsaved is None:
            return retry
        with suppress(OSError):  # the partial model has been deleted, so there may be space now
            save_checkpoint(self.folder.checkpoints, unsaved)
            return retry
        with suppress(OSError):
            elsewhere = Path(tempfile.mkdtemp(prefix="train_pytorch_model-"))
            save_checkpoint(elsewhere, unsaved)
            return f"Its checkpoint is in {elsewhere}. Move its two files to {self.folder.checkpoints}. {retry}"
        return "Nor could its checkpoint be written, there or to the temporary folder: the training is lost."


@contextmanager
def open_run(plan: Plan, output: Path, fresh: bool) -> Iterator[Run]:
    """Begin or continue a run, which alone writes here; collective.

    Raises `OutputDirectoryError`.
    """
    folder, token = RunFolder.beside(output), ""
    with ExitStack() as stack:
        if plan.world.is_main:
            stack.enter_context(run_lock(folder.root, logger.info))
            if run_folder.is_azure_job() and not fresh and not folder.has_checkpoints:
                _recover(folder, plan.fingerprint)
            # Once more: another command may just have written it.
            check_output(output, TRAINED_MODEL, by_writing=False, token=folder.token)
            token = folder.begin(plan.fingerprint, fresh)
        plan.world.barrier()
        yield Run(plan, output, folder, token)
    if plan.world.is_main:
        folder.remove()


def _recover(folder: RunFolder, fingerprint: Mapping[str, str]) -> None:
    """Fetch what an earlier start of this Azure ML job has uploaded, which is no longer on this
    machine.
    """
    if not (num_epochs := earlier_epochs()):
        return
    with tempfile.TemporaryDirectory() as scratch:
        for downloaded in map(RunFolder, earlier_copies(folder.root, Path(scratch))):
            if downloaded.is_of(fingerprint) and downloaded.has_checkpoints:
                run_folder.copy_run(downloaded.root, folder.root)
                logger.info("The checkpoint is one that an earlier start of this job has uploaded.")
                return
    logger.warning(
        f"The job's run in MLflow has {counted(num_epochs, 'epoch', 'epochs')} already, but there"
        " is"
        f" no checkpoint of this training in {folder.root}, in {folder.output} or among the run's"
        " artifacts."
        " It starts again at epoch 1, and MLflow keeps the first numbers of each epoch."
    )


def publish(run: Run, state: State, examined: Examined | None, report: str) -> None:
    """Write the trained directory of the best epoch, with the report if there is one.

    The logits of its model are those of the best epoch, divided by the temperature of what is
    `examined`. It is built in a local folder and then copied: the output may be on mounted storage.
    An unfinished output of this run is replaced. Raises `OutputDirectoryError` if it cannot be
    written.
    """
    where = _local_folder(run, state)
    built = where / f"train_pytorch_model-{run.token}"
    try:
        try:
            rmtree(built, ignore_errors=True)  # which an earlier start may have left
            built.mkdir(mode=0o700)
            meta = _build(built, run.plan, state, examined, report)
            write_manifest(built, run.plan.fingerprint)
        except OSError as error:
            raise OutputDirectoryError(f"The model cannot be built in {where}: {error}.") from error
        with writing_directory(run.output, meta, TRAINED_MODEL, run.token) as root:
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
    root: Path, plan: Plan, state: State, examined: Examined | None, report: str
) -> dict[str, Any]:
    """Write all files but the manifest and `_meta.yaml`; returns the content of that.

    Raises `OSError`.
    """
    inputs = plan.inputs
    model, decided, categories = inputs.model, inputs.recipe, inputs.categories
    weights = state.best.weights
    if examined and examined.temperature.value != 1:
        last_layer = {f"{plan.head}.weight", f"{plan.head}.bias"}
        temperature = examined.temperature.value
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
    write_json(root / image_list.SCHEMA, image_list.image_schema(categories))
    write_json(root / image_list.SAMPLES, samples_of(inputs.training))
    _describe(root, plan, state)
    if inputs.test is not None:
        write_split(root / SPLIT, Parts(inputs.training, inputs.validation, inputs.test))
    if state.progress.bad_images:
        rows = writing.table_of(BadImage, state.progress.bad_images)
        writing.write_csv(root / BAD_IMAGES, rows)
    run_folder.write_metrics(root / run_folder.METRICS, state.progress.history)
    if examined:
        if len(examined.energies):
            (root / KNOWN).write_text(known_json(examined.energies), encoding="ascii")
        for name, table in examined.tables.items():
            (root / name).write_text(table, encoding="utf-8")
        if examined.training_hashes.any():
            (root / IMAGE_HASHES).write_bytes(examined.training_hashes.tobytes())
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
        return image_list.image_samples(
            zip(paths, (row for _, row in images.read_rows()), strict=False)
        )
    except (
        Exception
    ) as error:  # the list may have changed during training; the model does not need it
        reason = str(error).removesuffix(".")
        logger.warning(
            f"{image_list.SAMPLES} shows no images: {reason}. The model is not affected."
        )
        return []


def _describe(root: Path, plan: Plan, state: State) -> None:
    """Write the MLflow model, the card and what registers them. Raises `OSError`."""
    from train_pytorch_model.tracking.mlflow_run import (
        save_model,
    )  # here, because it imports mlflow

    inputs, fingerprint, metrics = plan.inputs, plan.fingerprint, state.best.metrics
    lowest, highest = confidence_interval(metrics.top1, metrics.images)
    facts = {
        "task": "image-classification",
        "base_model_name": inputs.model.architecture,
        "num_categories": len(inputs.categories),
        "validation_accuracy": metrics.top1,
        "validation_accuracy_interval": [lowest, highest],
        "validation_images": metrics.images,
        "validation_loss": metrics.loss,
        "training_images": len(inputs.training),
        "training_data": fingerprint["training_dataset"],
        **{name: fingerprint[name] for name in ("parameters", "recipe")},
        "version": __version__,
    }
    framing = inputs.framing
    image = Image.new("RGB", (framing.width, framing.height))  # black, if none can be read any more
    for index in range(len(inputs.validation)):
        with suppress(UnreadableImageError):
            image = decode(inputs.validation.path(index), framing.short_side, framing.colours)
            break
    example = base64.b64encode(small_jpeg(image, max(framing.height, framing.width))).decode()
    save_model(root, inputs.spec, example, facts)
    card = _CARD.format(
        **facts,
        images=counted(metrics.images, "image", "images"),
        trained_on=counted(len(inputs.training), "image", "images"),
        categories=", ".join("`{}`".format(name.replace("`", "'")) for name in inputs.categories),
        lowest=lowest,
        highest=highest,
        height=framing.height,
        width=framing.width,
    )
    (root / run_folder.MODEL_CARD).write_text(card, encoding="utf-8")
    write_yaml(root / run_folder.AZUREML_MODEL, registration(facts, card))


def registration(facts: Mapping[str, Any], card: str) -> dict[str, Any]:
    """What `az ml model create --file` reads, in the trained directory."""
    return {
        "$schema": "https://azuremlschemas.azureedge.net/latest/model.schema.json",
        "name": "trained-model",
        "type": "mlflow_model",
        "path": ".",
        "description": card,
        "tags": {name: str(facts[name]) for name in _TAGS},
    }
