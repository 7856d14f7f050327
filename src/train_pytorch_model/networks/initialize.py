"""Initial weights of networks that are trained from scratch."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from train_pytorch_model.image_classifier import architectures

# Norm of each category's weights in the head. The filters' gradients pass through the head: from
# zeros, the filters start late, which costs 14 points on 300 drawings in 5 epochs; PyTorch's
# default norm costs 8 points on 300 CIFAR-10 images. In longer training zeros are better: by 5
# points on 1,000 CIFAR-10 images in 30 epochs. A head with more features learns proportionally
# faster and starts with a smaller norm: with 0.17, a ResNet-50 lost 4 points on 500 CIFAR-10
# images.
HEAD_NORM = 0.17
HEAD_FEATURES = 512
MIN_ZERO_HEAD_EPOCHS = 12
MIN_ZERO_HEAD_SAMPLES = 800  # seen of a category, in all epochs
# Their features are weak, and a head of small norm hardly uses them.
LARGE_HEADS = ("EfficientNet", "MobileNetV3")
LARGE_HEAD_NORM = 1 / math.sqrt(3)  # the default of nn.Linear
# Learning rate of a step, per image, for filters of norm 1: measured, close to fast ImageNet
# recipes.
RATE_PER_IMAGE = 0.4 / 256
MAX_RATE = 1.0  # reached at 640 images a step; beyond, linear scaling would need a warmup
MIN_NORM = 0.1  # below, the variance of the output approaches batch norm's epsilon, 1e-5


def initialize_from_scratch(
    network: nn.Module,
    architecture: str,
    epochs: int,
    images_per_category: float,
    peak_lr: float | None,
    batch_size: int,
) -> None:
    """Rescale random weights for training at a peak learning rate with SGD.

    Steps have `batch_size` images. With another optimizer `peak_lr` is None, and filters stay as
    they are.
    """
    num_samples = epochs * images_per_category
    is_long = epochs >= MIN_ZERO_HEAD_EPOCHS or num_samples >= MIN_ZERO_HEAD_SAMPLES
    _rescale_head(network, architecture, is_long)
    if peak_lr is not None:
        rate_of_norm_1 = min(MAX_RATE, RATE_PER_IMAGE * batch_size)
        rescale_filters(network, math.sqrt(peak_lr / rate_of_norm_1))


@torch.no_grad()
def _rescale_head(network: nn.Module, architecture: str, is_long: bool) -> None:
    """Give the head a fixed norm, as the filters have, or zeros if training is long.

    A hidden layer before it gets the standard deviation for ReLU (He and others, 2015): MobileNetV3
    has one, which torchvision initializes with a fifth of that.
    """
    head_name = architectures.head_of(architecture, network)
    head = network.get_submodule(head_name)
    assert isinstance(head, nn.Linear)
    classifier = network.get_submodule(head_name.rpartition(".")[0])
    for layer in classifier.children():
        if isinstance(layer, nn.Linear) and layer is not head:
            _scale(layer.weight, math.sqrt(2 / layer.in_features))
    norm = HEAD_NORM * min(1.0, math.sqrt(HEAD_FEATURES / head.in_features))
    if architectures.family_of(architecture).class_name in LARGE_HEADS:
        norm = LARGE_HEAD_NORM
    elif is_long:
        norm = 0.0
    _scale(head.weight, norm / math.sqrt(head.in_features))
    head.bias.zero_()


@torch.no_grad()
def rescale_filters(network: nn.Module, filter_norm: float) -> None:
    """Rescale every filter whose output only a batch norm sees to this norm, at least `MIN_NORM`.

    The running statistics are rescaled as well, so the network computes the same as before, up to
    rounding. Other filters stay as they are.
    """
    # timm's batch norms contain an activation.
    layers = [m for m in network.modules() if isinstance(m, _BatchNorm) or not list(m.children())]
    for convolution, batch_norm in pairwise(layers):
        if not (isinstance(convolution, nn.Conv2d) and isinstance(batch_norm, _BatchNorm)):
            continue
        # In a DenseNet, some batch norms also normalize earlier layers' features.
        if convolution.out_channels == batch_norm.num_features:
            _rescale(convolution, batch_norm, max(filter_norm, MIN_NORM))


def _rescale(convolution: nn.Conv2d, batch_norm: _BatchNorm, filter_norm: float) -> None:
    norms = torch.linalg.vector_norm(convolution.weight, dim=(1, 2, 3))  # (output channels,)
    factors = torch.where(norms > 0, filter_norm / norms, 1.0)
    convolution.weight.mul_(factors[:, None, None, None])
    if batch_norm.running_mean is not None and batch_norm.running_var is not None:
        batch_norm.running_mean.mul_(factors)
        batch_norm.running_var.mul_(factors**2)


def _scale(weight: Tensor, deviation: float) -> None:
    """Rescale random weights to a standard deviation; constant weights stay as they are."""
    present = weight.std()
    if present > 0:
        weight.mul_(deviation / present)


def set_new_bias(
    head: nn.Module, bias: Tensor, known: Sequence[str], categories: Sequence[str]
) -> None:
    """Set the bias (C,) of a last layer for the categories that its weights do not know."""
    is_new = torch.tensor([name not in known for name in categories])
    with torch.no_grad():
        if isinstance(head, nn.Linear) and head.bias is not None:
            head.bias.copy_(torch.where(is_new, bias, head.bias))
