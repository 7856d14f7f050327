"""What a trained model is, and how good: facts for the `metadata` of its MLmodel, and a card for people.

Azure ML reads neither when it registers a model, but does so from the YAML that `registration` returns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from train_pytorch_model import __version__
from train_pytorch_model.loop.metrics import Metrics
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.measures.evaluation import confidence_interval
from train_pytorch_model.words.wording import counted

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
| trained on | {training_images} |
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


def facts_of(plan: Plan, metrics: Metrics) -> dict[str, Any]:
    """The facts as plain values; `metrics` are those of the published epoch's validation."""
    lowest, highest = confidence_interval(metrics.top1, metrics.images)
    return {
        "task": "image-classification",
        "base_model_name": plan.inputs.model.architecture,
        "num_categories": len(plan.inputs.categories),
        "validation_accuracy": metrics.top1,
        "validation_accuracy_interval": [lowest, highest],
        "validation_images": metrics.images,
        "validation_loss": metrics.loss,
        "training_images": len(plan.inputs.training),
        "training_data": plan.fingerprint["training_dataset"],
        "parameters": plan.fingerprint["parameters"],
        "recipe": plan.fingerprint["recipe"],
        "version": __version__,
    }


def registration(facts: Mapping[str, Any], text: str) -> dict[str, Any]:
    """What `az ml model create --file` reads, in the trained directory; `text` is the card."""
    return {
        "$schema": "https://azuremlschemas.azureedge.net/latest/model.schema.json",
        "name": "trained-model",
        "type": "mlflow_model",
        "path": ".",
        "description": text,
        "tags": {name: str(facts[name]) for name in _TAGS},
    }


def card(facts: Mapping[str, Any], categories: Sequence[str], height: int, width: int) -> str:
    """The card, as Markdown."""
    lowest, highest = facts["validation_accuracy_interval"]
    counts = {
        "images": counted(facts["validation_images"], "image", "images"),
        "training_images": counted(facts["training_images"], "image", "images"),
    }
    names = ", ".join("`{}`".format(name.replace("`", "'")) for name in categories)
    shown = {**facts, **counts, "categories": names, "lowest": lowest, "highest": highest}
    return _CARD.format(**shown, height=height, width=width)
