"""First weights from which a network learns well at the learning rates that this component is used with.

A filter before a batch norm computes the same whatever its length; a step turns it by an angle that goes
with the learning rate over its squared length (van Laarhoven, 2017). PyTorch begins with lengths around 1.4,
at which 0.001, right for pretrained weights, is a fiftieth of what a network that knows nothing learns best
by.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from train_pytorch_model.image_classifier.architectures import FAMILY_OF

# Of each category's weights in the head. Filters learn by what the head has learned: from zeros, they begin
# late, which costs 300 drawings 14 points in 5 epochs; from a head as long as PyTorch's, 300 CIFAR-10 images
# lose 8. Where there is time, zeros are better: by 5 points for 1,000 CIFAR-10 images in 30 epochs. A head
# of more features learns as much faster, and begins shorter: a ResNet-50's of 0.17 cost 500 of them 4 points.
HEAD_LENGTH, HEAD_FEATURES = 0.17, 512
MIN_ZERO_HEAD_EPOCHS, MIN_ZERO_HEAD_LOOKS = 12, 800  # looks at images of a category, in all epochs
LONG_HEADS = ("EfficientNet", "MobileNetV3")  # families of faint features, of which a short one makes little
LONG_HEAD_LENGTH = 1 / math.sqrt(3)  # PyTorch's
RATE_PER_IMAGE = 0.4 / 256  # of a step, for filters of length 1: measured, and near fast ImageNet recipes
MAX_RATE = 1.0  # steps of more than 640 images: beyond, the rate cannot follow their number without a warmup
MIN_LENGTH = 0.1  # below, the variance of what comes out nears the 1e-5 that batch norm adds to it


def begin_from_scratch(
    network: nn.Module,
    architecture: str,
    epochs: int,
    images_per_category: float,
    peak_lr: float,
    batch_size: int,
) -> None:
    """Change random weights that are to be trained with a learning rate, in steps of `batch_size` images.

    The head gets a length, as the filters do, or becomes zeros where there is much to learn from, or time. A
    hidden layer before it gets the length that ReLU wants (He and others, 2015): a MobileNetV3 has one, which
    begins a fifth as long.
    """
    family = FAMILY_OF[architecture]
    head = network.get_submodule(family.head)
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        for layer in network.get_submodule(family.head.rpartition(".")[0]).children():
            if isinstance(layer, nn.Linear) and layer is not head:
                _scale(layer.weight, math.sqrt(2 / layer.in_features))
        length = HEAD_LENGTH * min(1.0, math.sqrt(HEAD_FEATURES / head.in_features))
        if family.class_name in LONG_HEADS:
            length = LONG_HEAD_LENGTH
        elif epochs >= MIN_ZERO_HEAD_EPOCHS or epochs * images_per_category >= MIN_ZERO_HEAD_LOOKS:
            length = 0.0
        _scale(head.weight, length / math.sqrt(head.in_features))
        head.bias.zero_()
    shorten_filters(network, math.sqrt(peak_lr / min(MAX_RATE, RATE_PER_IMAGE * batch_size)))


def shorten_filters(network: nn.Module, length: float) -> None:
    """Give every filter before a batch norm of its own this length, or `MIN_LENGTH`.

    The network computes the same as before, up to rounding; so the running statistics change with them.
    Filters without such a batch norm stay as they are.
    """
    layers = [module for module in network.modules() if not list(module.children())]
    with torch.no_grad():
        for layer, norm in pairwise(layers):
            if not (isinstance(layer, nn.Conv2d) and isinstance(norm, _BatchNorm)):
                continue
            # A DenseNet has some that also normalise what layers before have passed on.
            if layer.out_channels == norm.num_features:
                own = torch.linalg.vector_norm(layer.weight, dim=(1, 2, 3))
                factor = torch.where(own > 0, max(length, MIN_LENGTH) / own, 1.0)
                layer.weight.mul_(factor[:, None, None, None])
                if norm.running_mean is not None and norm.running_var is not None:
                    norm.running_mean.mul_(factor)
                    norm.running_var.mul_(factor**2)


def _scale(weight: Tensor, deviation: float) -> None:
    """Give random weights a standard deviation; those that are all alike stay as they are."""
    own = weight.std()
    if own > 0:
        weight.mul_(deviation / own)
