"""What a trained model is and how good, for registries and for people.

The facts are in the `metadata` of the MLmodel, and in a card for people. Azure ML reads neither
when it registers a model, but does so from the YAML that `registration` returns.
"""

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from train_pytorch_model import __version__
from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import confidence_interval
from train_pytorch_model.evaluation.race_table import HEADER, sentences, table_rows
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.label_kinds import LabelKind, OnePerImage, SetsPerImage
from train_pytorch_model.formats.race_record import RaceRecord
from train_pytorch_model.formats.writing import write_yaml
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, small_jpeg
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.machine.library_lines import library_lines
from train_pytorch_model.networks.licences import describe_licence
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.state import State


@dataclass(frozen=True)
class _Words:
    """How a model of one kind of labels is described."""

    task: str
    measure: str  # what its accuracy is
    labels: str  # the column of a served model's answers


_WORDS: Mapping[type[LabelKind], _Words] = {
    OnePerImage: _Words("image-classification", "validation accuracy", "`Scored Labels`"),
    SetsPerImage: _Words(
        "multi-label-image-classification",
        "validation images with labels, whose most probable category is among these",
        "`Scored Labels` with the list of those above their thresholds",
    ),
}
# Facts that a model registered in Azure ML has as tags.
_TAGS = ("task", "base_model_name", "num_categories", "validation_accuracy", "validation_images")
_CARD = """\
# Image classifier: {base_model_name}, {num_categories} categories

| | |
|---|---|
| architecture | {base_model_name} |
| input | images of any size, seen at {height} x {width} px |
| {measure} | {validation_accuracy:.1%} of {images} |
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
`{{"input_data": {{"columns": ["image"], "data": [["<base64>"]]}}}}` to an endpoint of Azure ML. \
The answer
has a column `Scored Probabilities_<category>` for each category, {labels}, and `error` \
for an image
that cannot be read. Validation chose the epoch: on other images the accuracy may be lower.
"""


def write_mlflow_model(root: Path, plan: Plan, state: State, spec: ClassifierSpec) -> None:
    """Make the directory an MLflow model, with a card and what registers it. Raises `OSError`."""
    # Here, because it imports mlflow.
    from train_pytorch_model.tracking.save_model import save_model

    facts = _facts(plan, state)
    save_model(root, spec, _example(plan.inputs), facts)
    card = _card(facts, plan.inputs)
    (root / trained_directory.MODEL_CARD).write_text(card, encoding="utf-8")
    write_yaml(root / trained_directory.AZUREML_MODEL, registration(facts, card))


def _facts(plan: Plan, state: State) -> dict[str, Any]:
    """Return what the model is and how good, for the `metadata` of the MLmodel."""
    inputs = plan.inputs
    metrics = state.best.metrics
    num_rated = _num_rated(inputs.validation, metrics.images)
    more: dict[str, Any] = {"race": msgspec.to_builtins(inputs.race)} if inputs.race else {}
    if inputs.model.weights_licence:
        more["weights_licence"] = inputs.model.weights_licence
    return {
        **more,
        "task": _WORDS[type(inputs.training.labels)].task,
        "base_model_name": inputs.model.architecture,
        "num_categories": len(inputs.categories),
        "validation_accuracy": metrics.top1,
        "validation_accuracy_interval": list(confidence_interval(metrics.top1, num_rated)),
        "validation_images": metrics.images,
        "validation_loss": metrics.loss,
        "training_images": len(inputs.training),
        "training_data": plan.fingerprint["training_dataset"],
        "parameters": plan.fingerprint["parameters"],
        "recipe": plan.fingerprint["recipe"],
        "version": __version__,
    }


def _num_rated(validation: ImageDirectory, images: int) -> int:
    """Return how many of the images that were validated the accuracy is about.

    Of an image without any category, none can be the most probable.
    """
    numbers = np.unique(validation.class_indices).tolist()
    empty = [number for number in numbers if not validation.labels.members(number)]
    return max(0, images - int(np.isin(validation.class_indices, empty).sum()))


def _example(inputs: TrainingInputs) -> str:
    """Return a validation image as a small base64-encoded file, to try the model with."""
    framing = inputs.framing
    image = Image.new("RGB", (framing.width, framing.height))  # black, if none can be read any more
    for index in range(len(inputs.validation)):
        with suppress(UnreadableImageError), library_lines:
            image = decode(inputs.validation.path(index), framing.short_side, framing.colours)
            break
    content = small_jpeg(image, max(framing.height, framing.width))
    return base64.b64encode(content).decode()


def _card(facts: Mapping[str, Any], inputs: TrainingInputs) -> str:
    lowest, highest = facts["validation_accuracy_interval"]
    names = [name.replace("`", "'") for name in inputs.categories]
    words = _WORDS[type(inputs.training.labels)]
    num_rated = _num_rated(inputs.validation, facts["validation_images"])
    text = _CARD.format(
        **facts,
        measure=words.measure,
        labels=words.labels,
        images=counted(num_rated, "image", "images"),
        trained_on=counted(len(inputs.training), "image", "images"),
        categories=", ".join(f"`{name}`" for name in names),
        lowest=lowest,
        highest=highest,
        height=inputs.framing.height,
        width=inputs.framing.width,
    )
    licence = inputs.model.weights_licence
    if licence:
        text += f"\nIt was trained from others' weights. {describe_licence(licence)}\n"
    return text + _about_race(inputs.race) if inputs.race else text


def _about_race(race: RaceRecord) -> str:
    """Return how the network was chosen, as Markdown."""
    rows = [HEADER, ("---",) * len(HEADER), *table_rows(race)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"\n## How the network was chosen\n\n{' '.join(sentences(race))}\n\n{table}"


def registration(facts: Mapping[str, Any], card: str) -> dict[str, Any]:
    """Return what `az ml model create --file` reads, in the trained directory."""
    return {
        "$schema": "https://azuremlschemas.azureedge.net/latest/model.schema.json",
        "name": "trained-model",
        "type": "mlflow_model",
        "path": ".",
        "description": card,
        "tags": {name: str(facts[name]) for name in _TAGS},
    }
