"""Gradients in one tensor, which several processes average at once."""

from collections.abc import Iterable

import torch
from torch import nn


class FlatGradients:
    """All gradients of a network in one float32 tensor, whose address does not change."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        """Gradients have the memory format of the parameters, which are dense."""
        self._parameters = list(parameters)
        sizes = [parameter.numel() for parameter in self._parameters]
        self.values = torch.zeros(sum(sizes), device=self._parameters[0].device)
        """(N,), of all parameters, one after the other."""
        self._gradients = [
            values.as_strided(parameter.shape, parameter.stride())
            for values, parameter in zip(
                torch.split(self.values, sizes), self._parameters, strict=True
            )
        ]

    def clear(self) -> None:
        """Let the next backward pass add its gradients here, to zeros."""
        self.values.zero_()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
