"""Networks built from the model directories that name them."""

from collections.abc import Sequence

import torch
from torch import nn

from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.image_classifier.weights import WeightsError
from train_pytorch_model.networks.load_weights import load_weights


def build_untrained(directory: ModelDirectory, num_classes: int) -> nn.Module:
    """Return the directory's network with random weights. Raises `InvalidModelDirectoryError`."""
    try:
        return architectures.build(
            directory.architecture, directory.option, num_classes, directory.recipe.image_sides
        )
    except architectures.UnsupportedArchitectureError as error:
        raise directory.error(f"it is of {directory.architecture}: {error}") from error


def build_model(directory: ModelDirectory, categories: Sequence[str]) -> nn.Module:
    """Return the directory's network with its weights, for these categories.

    A trained directory's head keeps the rows of categories that it knows, by name; others get
    zeros. If an untrained one's head has another size, it is replaced by zeros if it is pretrained,
    otherwise by random weights from torch's global generator. The network maps (B, 3, H, W),
    float32, to logits (B, number of categories). Raises `InvalidModelDirectoryError`.
    """
    network = build_untrained(directory, len(categories))
    head = architectures.head_of(directory.architecture, network)
    if directory.is_pretrained:
        with torch.no_grad():
            for parameter in network.get_submodule(head).parameters():
                parameter.zero_()
    try:
        load_weights(network, head, directory.weights_path, directory.categories, categories)
    except WeightsError as error:
        raise directory.error(
            f"{directory.weights_path.name}: {error}",
            f"The weights of a {directory.architecture} are expected.",
        ) from error
    return network
