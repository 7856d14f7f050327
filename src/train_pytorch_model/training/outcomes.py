"""The outcome of each image of a pass, kept on the device."""

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.image_classifier.classifier import exact_device
from train_pytorch_model.training.metrics import ranks_of


class OutcomeRows:
    """The outcome of each image of a pass, 40 bytes each on the device: adding never waits for it."""

    def __init__(self, device: torch.device) -> None:
        self._rows = [torch.empty(5, 0, dtype=torch.float64, device=exact_device(device))]

    @torch.no_grad()
    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch of logits (B, C) and targets (B,)."""
        logits, targets = logits.to(self._rows[0].device), targets.to(self._rows[0].device)
        predicted = logits.argmax(dim=1)  # the first on ties
        chosen = torch.stack([predicted, targets], dim=1)  # (B, 2)
        confidences, of_target = logits.double().softmax(dim=1).gather(1, chosen).unbind(dim=1)
        columns = (targets, predicted, confidences, of_target, ranks_of(logits, targets))
        self._rows.append(torch.stack([column.double() for column in columns]))

    def outcomes(self) -> Outcomes:
        """The outcomes of all batches, in their order. Waits for the device."""
        targets, predicted, confidences, of_target, ranks = (
            torch.cat(self._rows, dim=1).cpu().numpy()
        )
        targets, predicted, ranks = (
            column.astype(np.int64) for column in (targets, predicted, ranks)
        )
        return Outcomes(targets, predicted, confidences, of_target, ranks)
