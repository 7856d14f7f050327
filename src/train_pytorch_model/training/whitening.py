"""Steps of a last layer on features of a frozen backbone, as if these were white.

Most of the squared norm of features is their mean, and most of the rest is along a few directions.
These limit the learning rate, at which all other directions hardly train in a few epochs. So the
gradients are scaled: the mean is taken out, and steps along each direction in which a sample varies
are divided by its variance, shrunk towards the mean variance of all. That is steepest descent in
the coordinates x -> P^(1/2) (x - mean), with P = (C / shrunk variance + 1)^-1 of the covariance C:
the weights themselves, the loss and what is published stay what they are. For a convex problem, as
this is, only the way to the minimum differs.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# How much the covariance of so few images is shrunk towards the mean variance, as a multiple of it.
SHRINKAGE = 3.0
MIN_IMAGES = 3
FOLDS = 16  # of the sample, for the norm of features outside it


@dataclass(frozen=True)
class Whitening:
    """How gradients of a last layer are scaled, of F features."""

    mean: Tensor  # (F,), float32, of the sampled features
    directions: Tensor  # (K, F), float32, orthonormal: in which they vary
    damping: Tensor  # (K,), float32, in [0, 1): by how much steps along them are shortened
    squared_norm: float  # mean, of features outside the sample, as such steps see them

    def to(self, device: torch.device) -> "Whitening":
        """Return the same on a device."""
        return replace(
            self,
            mean=self.mean.to(device),
            directions=self.directions.to(device),
            damping=self.damping.to(device),
        )

    def attach(self, optimizer: Optimizer, head: nn.Linear) -> None:
        """Scale the gradients of this layer before each step of the optimizer.

        That is linear: gradients may be scaled, or averaged over processes, before.
        """

        def scale(*_: Any) -> None:
            self.scale(head)

        optimizer.register_step_pre_hook(scale)

    @torch.no_grad()
    def scale(self, head: nn.Linear) -> None:
        """Scale the gradients of a layer in place."""
        weight = head.weight.grad  # (C, F)
        bias = head.bias.grad  # (C,)
        if weight is None or bias is None:
            return
        weight.addr_(bias, self.mean, alpha=-1)
        weight.sub_((weight @ self.directions.T * self.damping) @ self.directions)
        bias.sub_(weight @ self.mean)


def whitening_of(features: Tensor) -> Whitening | None:
    """Return the whitening by a sample of features (N, F); None of too few images."""
    if len(features) < MIN_IMAGES:
        return None
    features = features.double().cpu()
    mean, directions, damping = _axes(features)
    # Within the sample, little would be left of the norm: each fold by the axes of the others.
    folds = torch.arange(len(features)) % FOLDS
    norms = [
        _squared_norms(features[folds == fold], *_axes(features[folds != fold]))
        for fold in range(min(FOLDS, len(features)))
    ]
    return Whitening(
        mean.float(), directions.float(), damping.float(), float(torch.cat(norms).mean())
    )


def _axes(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean (F,), directions (K, F) and damping (K,) of features (N, F)."""
    mean = features.mean(dim=0)
    _, singular, directions = torch.linalg.svd(features - mean, full_matrices=False)
    variances = singular.square() / (len(features) - 1)
    shrunk = SHRINKAGE * variances.sum() / features.shape[1]
    damping = torch.where(variances > 0, variances / (variances + shrunk), 0.0)
    return mean, directions, damping


def _squared_norms(features: Tensor, mean: Tensor, directions: Tensor, damping: Tensor) -> Tensor:
    """Return the squared norms (N,) of features (N, F) in the coordinates of steps."""
    centred = features - mean
    along = centred @ directions.T
    return centred.square().sum(dim=1) - (damping * along.square()).sum(dim=1)
